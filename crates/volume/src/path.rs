//! Paths as clients write them.

use crate::{Error, Result};

const MAX_BYTES: usize = 4000;
const MAX_PARTS: usize = 256;
const MAX_NAME: usize = 255;

/// A clean path below the root of a volume: no empty parts, no dots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CleanPath {
    parts: Vec<String>,
}

impl CleanPath {
    /// With or without a leading slash. Dots are taken lexically, and nothing is above the root.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        if text.is_empty() {
            return Err(Error::Path("it is empty"));
        }
        if text.contains('\0') {
            return Err(Error::Path("it contains NUL"));
        }
        if text.len() > MAX_BYTES {
            return Err(Error::Path("too long"));
        }
        let mut parts: Vec<String> = Vec::new();
        for part in text.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    parts.pop();
                }
                name if name.len() > MAX_NAME => return Err(Error::Path("a name is too long")),
                name => parts.push(name.to_owned()),
            }
        }
        if parts.len() > MAX_PARTS {
            return Err(Error::Path("too deep"));
        }
        Ok(Self { parts })
    }

    /// For the kernel, relative to the root.
    pub(crate) fn relative(&self) -> String {
        if self.parts.is_empty() {
            ".".to_owned()
        } else {
            self.parts.join("/")
        }
    }

    /// For people.
    pub(crate) fn absolute(&self) -> String {
        format!("/{}", self.parts.join("/"))
    }

    /// `None` for the root.
    pub(crate) fn split(&self) -> Option<(Self, &str)> {
        let (name, parents) = self.parts.split_last()?;
        let parent = Self {
            parts: parents.to_vec(),
        };
        Some((parent, name))
    }

    /// Itself and everything above it, the uppermost first, without the root.
    pub(crate) fn parents_and_self(&self) -> impl Iterator<Item = Self> + '_ {
        (1..=self.parts.len()).map(|length| Self {
            parts: self.parts[..length].to_vec(),
        })
    }
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_and_slashes_are_cleaned_and_the_root_is_the_top() {
        for (text, clean) in [
            ("/", "/"),
            (".", "/"),
            ("../../..", "/"),
            ("a//b/./c/", "/a/b/c"),
            ("/a/../../b", "/b"),
            ("/ä b/\n", "/ä b/\n"),
        ] {
            assert_eq!(
                CleanPath::parse(text).unwrap().absolute(),
                clean,
                "{text:?}"
            );
        }
    }

    #[test]
    fn what_no_kernel_takes_is_refused() {
        let long = "x".repeat(256);
        let deep = "d/".repeat(300);
        for bad in ["", "a\0b", long.as_str(), deep.as_str()] {
            assert!(matches!(CleanPath::parse(bad), Err(Error::Path(_))));
        }
    }

    #[test]
    fn parents_come_before_the_path() {
        let path = CleanPath::parse("/a/b").unwrap();
        let steps: Vec<_> = path
            .parents_and_self()
            .map(|step| step.absolute())
            .collect();
        assert_eq!(steps, ["/a", "/a/b"]);
    }
}
