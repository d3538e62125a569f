//! Where a definition and the files that it names come from.

use std::{
    borrow::Cow,
    fmt,
    io::Read,
    path::{Component, Path, PathBuf},
};

use anyhow::{Context, bail, ensure};

const FILE: &str = "template.toml";
/// Of a definition, or of a file that it names: what is larger belongs into an image.
const LARGEST: u64 = 16 << 20;

#[derive(Debug)]
pub(super) enum Source {
    /// In this program.
    Embedded {
        text: &'static str,
        files: &'static [(&'static str, &'static [u8])],
    },
    /// The operator's.
    Folder(PathBuf),
}

macro_rules! text {
    ($path:literal) => {
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../templates/",
            $path
        ))
    };
}

const fn embedded(text: &'static str) -> Source {
    Source::Embedded { text, files: &[] }
}

/// Each after those that it stands on.
pub(super) const SOURCES: [Source; 5] = [
    embedded(text!("base-debian/template.toml")),
    embedded(text!("agent/template.toml")),
    Source::Embedded {
        text: text!("code-interpreter-slim/template.toml"),
        files: &[(
            "requirements.txt",
            text!("code-interpreter-slim/requirements.txt").as_bytes(),
        )],
    },
    embedded(text!("code-interpreter-v1/template.toml")),
    embedded(text!("desktop/template.toml")),
];

/// Every folder in it that has a definition, by name. Blocking.
pub(super) fn in_folder(folder: &Path) -> anyhow::Result<Vec<Source>> {
    let mut found = Vec::new();
    for entry in fs_err::read_dir(folder)? {
        let path = entry?.path();
        if path.join(FILE).is_file() {
            found.push(path);
        }
    }
    ensure!(
        !found.is_empty(),
        "{} has no folder with a {FILE}: templates/README.md in the source tells the format",
        folder.display()
    );
    found.sort();
    Ok(found.into_iter().map(Source::Folder).collect())
}

impl Source {
    /// Blocking.
    pub(super) fn text(&self) -> anyhow::Result<Cow<'static, str>> {
        Ok(match self {
            Self::Embedded { text, .. } => Cow::Borrowed(text),
            Self::Folder(_) => {
                let text = String::from_utf8(self.file(FILE)?);
                Cow::Owned(text.with_context(|| format!("{self}: it is no text"))?)
            }
        })
    }

    /// Blocking. One that the definition names, below its folder.
    pub(super) fn file(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        match self {
            Self::Embedded { files, .. } => {
                let known = files.iter().find(|(name, _)| *name == path);
                let (_, content) = known.with_context(|| format!("no file {path}"))?;
                Ok(content.to_vec())
            }
            Self::Folder(folder) => {
                let is_below = Path::new(path)
                    .components()
                    .all(|part| matches!(part, Component::Normal(_)));
                if path.is_empty() || !is_below {
                    bail!("{path:?} is no path below the definition's folder");
                }
                let mut content = Vec::new();
                let file = fs_err::File::open(folder.join(path))?;
                file.take(LARGEST + 1).read_to_end(&mut content)?;
                ensure!(
                    content.len() as u64 <= LARGEST,
                    "{path} has more than {} MiB",
                    LARGEST >> 20
                );
                Ok(content)
            }
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded { .. } => f.write_str("a built-in template"),
            Self::Folder(folder) => write!(f, "{}", folder.join(FILE).display()),
        }
    }
}
