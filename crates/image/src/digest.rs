//! SHA-256 digests as registries write them.

use std::fmt;

use aws_lc_rs::digest::{Context, SHA256, digest};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

const PREFIX: &str = "sha256:";

/// Always 64 lower-case hex digits, so that it is safe as a file name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Digest(String);

impl Digest {
    /// `sha256:` and 64 hex digits; the one algorithm that registries in use have.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::from_hex(text.strip_prefix(PREFIX)?)
    }

    pub(crate) fn from_hex(hex: &str) -> Option<Self> {
        let good = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        (hex.len() == 64 && hex.bytes().all(good)).then(|| Self(hex.to_owned()))
    }

    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(hex::encode(digest(&SHA256, bytes)))
    }

    pub(crate) fn hex(&self) -> &str {
        &self.0
    }

    /// As people write it.
    pub(crate) fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.0)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            let start: String = text.chars().take(80).collect();
            de::Error::custom(format!("{start:?} is not a sha256 digest"))
        })
    }
}

/// A digest in the making.
#[derive(Clone)]
pub(crate) struct Hasher(Context);

impl Hasher {
    pub(crate) fn new() -> Self {
        Self(Context::new(&SHA256))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> Digest {
        Digest(hex::encode(self.0.finish()))
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hasher")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_lower_case_sha256_digests_are_read() {
        let good = Digest::of(b"").to_string();
        assert_eq!(
            good,
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        assert_eq!(Digest::parse(&good).unwrap().to_string(), good);
        for bad in [
            "",
            "sha256:",
            "sha256:../../etc/passwd",
            "sha512:00",
            &good.to_uppercase(),
            &good[..70],
        ] {
            assert_eq!(Digest::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn hashing_in_pieces_gives_the_same() {
        let mut hasher = Hasher::new();
        hasher.update(b"one ");
        hasher.update(b"two");
        assert_eq!(hasher.finish(), Digest::of(b"one two"));
    }
}
