//! Kernel specifications: the `kernel.json` files that say how a kernel is started.

use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use serde::Deserialize;

const MAX_FILE: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spec {
    pub(crate) name: String,
    pub(crate) argv: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) interrupt: Interrupt,
    /// Whether it can listen on Unix sockets. Only our own files say so.
    pub(crate) unix_sockets: bool,
    /// A program that starts such kernels faster, if there is one.
    pub(crate) zygote: Option<Vec<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Interrupt {
    #[default]
    Signal,
    Message,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("No such kernel named {0}")]
    Unknown(String),
    #[error("the file {0} is not a kernel specification: {1}")]
    Malformed(PathBuf, serde_json::Error),
    #[error("the kernel specification {0} starts nothing: its argv is empty")]
    Empty(PathBuf),
}

#[derive(Deserialize)]
struct File {
    argv: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    interrupt_mode: Interrupt,
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    soulbox: SoulboxMetadata,
}

#[derive(Default, Deserialize)]
struct SoulboxMetadata {
    #[serde(default)]
    unix_sockets: bool,
    zygote: Option<Vec<String>>,
}

/// The folders in which kernels are looked for, the first match wins.
#[derive(Debug, Clone)]
pub(crate) struct Folders(Vec<PathBuf>);

impl Folders {
    /// Ours, then those that Jupyter has.
    pub(crate) fn new(own: &Path, variable: impl Fn(&str) -> Option<String>) -> Self {
        let mut folders = vec![own.join("kernels")];
        if let Some(path) = variable("JUPYTER_PATH") {
            folders.extend(std::env::split_paths(&path).map(|folder| folder.join("kernels")));
        }
        if let Some(home) = variable("HOME") {
            folders.push(Path::new(&home).join(".local/share/jupyter/kernels"));
        }
        folders.push("/usr/local/share/jupyter/kernels".into());
        folders.push("/usr/share/jupyter/kernels".into());
        Self(folders)
    }

    pub(crate) fn find(&self, names: &[&str]) -> Result<Spec, Error> {
        let asked = names.first().copied().unwrap_or_default();
        for name in names.iter().filter(|name| is_name(name)) {
            for folder in &self.0 {
                let folder = folder.join(name);
                if let Some(text) = read(&folder.join("kernel.json")) {
                    return parse(name, &folder, &text);
                }
            }
        }
        Err(Error::Unknown(asked.to_owned()))
    }
}

/// A name comes from the network and becomes part of a path.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 64
        && !name.starts_with('.')
        && name
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || "._-+".contains(letter))
}

fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    fs::File::open(path)
        .ok()?
        .take(MAX_FILE)
        .read_to_string(&mut text)
        .ok()?;
    Some(text)
}

fn parse(name: &str, folder: &Path, text: &str) -> Result<Spec, Error> {
    let path = || folder.join("kernel.json");
    let file: File = serde_json::from_str(text).map_err(|e| Error::Malformed(path(), e))?;
    if file.argv.is_empty() {
        return Err(Error::Empty(path()));
    }
    let here = |text: &String| text.replace("{resource_dir}", &folder.to_string_lossy());
    Ok(Spec {
        name: name.to_owned(),
        argv: file.argv.iter().map(here).collect(),
        env: file.env,
        interrupt: file.interrupt_mode,
        unix_sockets: file.metadata.soulbox.unix_sockets,
        zygote: file
            .metadata
            .soulbox
            .zygote
            .map(|argv| argv.iter().map(here).collect()),
    })
}

impl Spec {
    pub(crate) fn command(&self, connection: &Path) -> Vec<String> {
        self.argv
            .iter()
            .map(|argument| argument.replace("{connection_file}", &connection.to_string_lossy()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders(root: &Path) -> Folders {
        Folders::new(root, |name| {
            (name == "JUPYTER_PATH").then(|| root.join("second").display().to_string())
        })
    }

    fn install(root: &Path, name: &str, json: &str) {
        let folder = root.join("kernels").join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("kernel.json"), json).unwrap();
    }

    #[test]
    fn the_first_folder_and_the_first_name_win() {
        let root = tempfile::tempdir().unwrap();
        install(root.path(), "ir", r#"{"argv": ["first"]}"#);
        install(&root.path().join("second"), "ir", r#"{"argv": ["second"]}"#);
        let spec = folders(root.path()).find(&["r", "ir"]).unwrap();
        assert_eq!(
            (spec.name.as_str(), &spec.argv[..]),
            ("ir", &["first".to_owned()][..])
        );
    }

    #[test]
    fn places_are_filled_in() {
        let root = tempfile::tempdir().unwrap();
        install(
            root.path(),
            "x",
            r#"{"argv": ["{resource_dir}/k", "{connection_file}"]}"#,
        );
        let spec = folders(root.path()).find(&["x"]).unwrap();
        let command = spec.command(Path::new("/run/c.json"));
        assert!(command[0].ends_with("kernels/x/k"));
        assert_eq!(command[1], "/run/c.json");
    }

    #[test]
    fn names_that_lead_elsewhere_are_unknown() {
        let root = tempfile::tempdir().unwrap();
        install(root.path(), "x", r#"{"argv": ["k"]}"#);
        for name in ["../kernels/x", "", ".", "..", "x/", "/x", "x\0"] {
            assert!(
                matches!(folders(root.path()).find(&[name]), Err(Error::Unknown(_))),
                "{name:?}"
            );
        }
    }

    #[test]
    fn broken_files_say_which() {
        let root = tempfile::tempdir().unwrap();
        install(root.path(), "x", "{}");
        install(root.path(), "y", r#"{"argv": []}"#);
        assert!(matches!(
            folders(root.path()).find(&["x"]),
            Err(Error::Malformed(..))
        ));
        assert!(matches!(
            folders(root.path()).find(&["y"]),
            Err(Error::Empty(_))
        ));
    }
}
