//! Names of templates as clients write them: `[namespace/]alias[:tag]`, or an id.

use crate::{Error, Result};

const MAX_LENGTH: usize = 128;
/// What an absent tag means.
pub(crate) const DEFAULT_TAG: &str = "default";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    pub namespace: Option<String>,
    /// An alias or an id: only looking it up tells.
    pub name: String,
    pub tag: Option<String>,
}

impl Reference {
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.trim().to_lowercase();
        if text.is_empty() {
            return Err(bad("it is empty"));
        }
        if text.len() > MAX_LENGTH {
            return Err(bad("it is longer than 128 characters"));
        }
        let (path, tag) = match text.split_once(':') {
            Some((path, tag)) => (path, Some(tag)),
            None => (text.as_str(), None),
        };
        let (namespace, name) = match path.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, path),
        };
        if !namespace.is_none_or(is_word) || !is_word(name) {
            return Err(bad("names consist of a-z, 0-9, - and _"));
        }
        if !tag.is_none_or(is_tag) {
            return Err(bad("tags consist of a-z, 0-9, -, _ and ."));
        }
        Ok(Self {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
            tag: tag.map(str::to_owned),
        })
    }
}

/// A tag on its own has the shape that it has in a reference.
pub(crate) fn tag(text: &str) -> Result<String> {
    let text = text.trim().to_lowercase();
    if text.len() > MAX_LENGTH || !is_tag(&text) {
        return Err(bad("tags consist of a-z, 0-9, -, _ and ."));
    }
    Ok(text)
}

fn bad(why: &str) -> Error {
    Error::InvalidReference(why.to_owned())
}

pub(crate) fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(is_word_byte)
}

fn is_tag(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| is_word_byte(b) || b == b'.')
}

fn is_word_byte(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_'
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (Option<String>, String, Option<String>) {
        let Reference {
            namespace,
            name,
            tag,
        } = Reference::parse(text).unwrap();
        (namespace, name, tag)
    }

    #[test]
    fn all_parts_are_found_in_lower_case() {
        assert_eq!(parts(" Base "), (None, "base".into(), None));
        assert_eq!(
            parts("team/x_1:v1.0"),
            (Some("team".into()), "x_1".into(), Some("v1.0".into()))
        );
    }

    #[test]
    fn other_shapes_are_refused() {
        let long = "a".repeat(129);
        for text in [
            "", " ", ":", "a:", ":a", "a/", "/a", "a/b/c", "a:b:c", "ä", "a b", &long,
        ] {
            assert!(Reference::parse(text).is_err(), "{text:?}");
        }
    }
}
