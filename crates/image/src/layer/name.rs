//! Names of entries: below the root, whatever the archive says.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use super::LayerError;

/// The kernel takes no longer path at once.
const MAX_LENGTH: usize = 4095;
/// Removing a tree holds a descriptor per level.
const MAX_DEPTH: usize = 200;

/// Relative, without `.` and `..`; empty for the root itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name(PathBuf);

impl Name {
    /// Names from the root on (`/etc`, `./etc`, `etc`) all mean the same: tools differ.
    pub(crate) fn parse(raw: &[u8]) -> Result<Self, LayerError> {
        let escape = |reason| LayerError::Escape {
            entry: shown(raw),
            reason,
        };
        let entry = |reason: &str| LayerError::Entry {
            entry: shown(raw),
            reason: reason.to_owned(),
        };
        if raw.len() > MAX_LENGTH {
            return Err(entry("its name is too long"));
        }
        if raw.contains(&0) {
            return Err(entry("its name has a NUL byte"));
        }
        let mut path = PathBuf::new();
        let mut depth = 0;
        for part in raw.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => return Err(escape("it has .. in it")),
                part => {
                    depth += 1;
                    path.push(OsStr::from_bytes(part));
                }
            }
        }
        if depth > MAX_DEPTH {
            return Err(entry("it is too deep"));
        }
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The directory, and the name in it. `None` for the root.
    pub(crate) fn split(&self) -> Option<(&Path, &OsStr)> {
        Some((self.0.parent()?, self.0.file_name()?))
    }
}

/// For messages.
pub(crate) fn shown(raw: &[u8]) -> String {
    String::from_utf8_lossy(raw).chars().take(200).collect()
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_relative_to_the_root_however_they_are_written() {
        for raw in ["etc/passwd", "./etc/passwd", "/etc//passwd", "etc/./passwd"] {
            let name = Name::parse(raw.as_bytes()).unwrap();
            assert_eq!(name.path(), Path::new("etc/passwd"), "{raw}");
        }
        for root in ["", ".", "./", "/"] {
            assert!(Name::parse(root.as_bytes()).unwrap().split().is_none());
        }
    }

    #[test]
    fn names_that_climb_or_are_absurd_are_refused() {
        let deep = "a/".repeat(300);
        let long = "a".repeat(5000);
        for bad in [
            "..",
            "../x",
            "a/../../x",
            "a/..",
            "/..",
            "a\0b",
            &deep,
            &long,
        ] {
            assert!(Name::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(Name::parse(b"..a/b..").is_ok());
    }
}
