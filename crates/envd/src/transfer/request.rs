//! The request of a copy.

use std::path::{Path, PathBuf};

use super::{
    Error,
    owner::{self, Ownership},
};

/// `src`, `dest`, `owner`, `mode`, `workdir` and `user` of one COPY.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CopyRequest {
    pub(super) source: Source,
    pub(super) target: Target,
    pub(super) ownership: Ownership,
    /// For everything that is copied.
    pub(super) mode: Option<u32>,
}

impl CopyRequest {
    pub(super) fn parse(query: Option<&str>) -> Result<Self, Error> {
        let mut fields: [String; 6] = Default::default();
        let mut keep_owners = false;
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            let at = match &*name {
                "src" => 0,
                "dest" => 1,
                "owner" => 2,
                "mode" => 3,
                "workdir" => 4,
                "user" => 5,
                "keep_owners" => {
                    keep_owners = value == "true";
                    continue;
                }
                _ => continue,
            };
            if value.contains('\0') {
                return Err(Error::Move(format!("{name} holds a NUL character")));
            }
            fields[at] = value.into_owned();
        }
        let [src, dest, owner, mode, workdir, user] = fields;
        let ownership = match (owner.as_str(), user.as_str()) {
            ("", _) if keep_owners => Ownership::Kept,
            ("", "") => owner::parse("root")?,
            ("", owner) | (owner, _) => owner::parse(owner)?,
        };
        Ok(Self {
            source: Source::parse(&src)?,
            target: Target::new(&dest, &workdir),
            ownership,
            mode: octal(&mode)?,
        })
    }
}

fn octal(mode: &str) -> Result<Option<u32>, Error> {
    if mode.is_empty() {
        return Ok(None);
    }
    let digits = mode.strip_prefix("0o").unwrap_or(mode);
    u32::from_str_radix(digits, 8)
        .ok()
        .filter(|mode| *mode <= 0o7777)
        .map(Some)
        .ok_or_else(|| Error::Move(format!("invalid mode: '{mode}' is not an octal number")))
}

/// What of the archive is copied.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) shown: String,
    /// Clean components of the path.
    pub(super) literal: Vec<String>,
    /// Those before the first that holds a glob, if any does: the archive has only what matched, so
    /// all that is below them is meant.
    pub(super) before_glob: Option<Vec<String>>,
    /// Nothing was said: the archive is one file or one directory, and says itself which.
    pub(super) unsaid: bool,
}

impl Source {
    fn parse(src: &str) -> Result<Self, Error> {
        let mut literal: Vec<String> = Vec::new();
        for component in src.split('/') {
            match component {
                "" | "." => {}
                ".." => {
                    literal.pop().ok_or_else(|| {
                        Error::Move(format!("'{src}' leads out of the uploaded files"))
                    })?;
                }
                name => literal.push(name.to_owned()),
            }
        }
        let glob = literal
            .iter()
            .position(|name| name.contains(['*', '?', '[', '{', '(']));
        Ok(Self {
            shown: src.to_owned(),
            before_glob: glob.map(|at| literal[..at].to_vec()),
            literal,
            unsaid: src.is_empty(),
        })
    }
}

/// Where it goes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) path: PathBuf,
    /// Written as one: a file goes into it.
    pub(super) is_directory: bool,
}

impl Target {
    fn new(dest: &str, workdir: &str) -> Self {
        let last = dest.rsplit('/').next().unwrap_or_default();
        Self {
            // Without `.` and doubled slashes; `..` is left to the kernel, which knows the links.
            path: Path::new("/")
                .join(workdir)
                .join(dest)
                .components()
                .collect(),
            is_directory: matches!(last, "" | "." | ".."),
        }
    }
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    fn source(src: &str) -> (String, Option<String>) {
        let source = Source::parse(src).unwrap();
        (
            source.literal.join("/"),
            source.before_glob.map(|parts| parts.join("/")),
        )
    }

    #[test]
    fn what_stands_before_a_glob_is_stripped_by_whole_components() {
        let glob = |literal: &str, before: &str| (literal.to_owned(), Some(before.to_owned()));
        assert_eq!(source("folder/*"), glob("folder/*", "folder"));
        assert_eq!(source("*.txt"), glob("*.txt", ""));
        assert_eq!(source("./a//b/fo?/c"), glob("a/b/fo?/c", "a/b"));
        assert_eq!(source("a/**/b"), glob("a/**/b", "a"));
        assert_eq!(source("a/b/"), ("a/b".to_owned(), None));
        assert_eq!(source("."), (String::new(), None));
        assert_eq!(source("a/../b"), ("b".to_owned(), None));
    }

    #[test]
    fn sources_outside_are_refused() {
        for src in ["..", "../a", "a/../../b"] {
            assert!(Source::parse(src).is_err(), "{src}");
        }
    }

    #[test]
    fn targets_are_relative_to_the_working_directory() {
        let target = |dest, workdir| {
            let target = Target::new(dest, workdir);
            (target.path.display().to_string(), target.is_directory)
        };
        assert_eq!(target("a/b", "/w"), ("/w/a/b".into(), false));
        assert_eq!(target("a/", "/w/"), ("/w/a".into(), true));
        assert_eq!(target(".", "/w"), ("/w".into(), true));
        assert_eq!(target("", ""), ("/".into(), true));
        assert_eq!(target("./x", ""), ("/x".into(), false));
        assert_eq!(target("/abs//x", "/w"), ("/abs/x".into(), false));
    }

    #[test]
    fn modes_are_octal() {
        assert_eq!(octal("").unwrap(), None);
        assert_eq!(octal("755").unwrap(), Some(0o755));
        assert_eq!(octal("0o4755").unwrap(), Some(0o4755));
        for mode in ["8", "u+x", "77777", "-1"] {
            assert!(octal(mode).is_err(), "{mode}");
        }
    }
}
