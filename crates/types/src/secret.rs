//! Strings that cannot be printed by accident.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A token or key. `Debug` shows only that there is one; there is no `Display`.
/// It does serialize, because the node's state folder (mode 0600) must hold it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// 32 random bytes in hex.
    pub fn random() -> Self {
        let mut bytes = [0_u8; 32];
        crate::id::fill_random(&mut bytes);
        let digits = bytes.iter().flat_map(|b| [b >> 4, b & 15]);
        Self(
            digits
                .filter_map(|d| char::from_digit(d.into(), 16))
                .collect(),
        )
    }

    /// The text itself. Every use is a place to look at in a review.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Compares without telling, by the time it takes, how many characters matched.
    pub fn matches(&self, other: &str) -> bool {
        let (a, b) = (self.0.as_bytes(), other.as_bytes());
        a.len() == b.len() && a.iter().zip(b).fold(0, |diff, (x, y)| diff | (x ^ y)) == 0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_hides_the_text() {
        assert!(!format!("{:?}", Secret::new("hunter2")).contains("hunter2"));
    }

    #[test]
    fn matching_is_exact() {
        let secret = Secret::new("abc");
        assert!(secret.matches("abc"));
        assert!(!secret.matches("abd") && !secret.matches("ab") && !secret.matches(""));
    }
}
