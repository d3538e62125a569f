use std::{str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, de};

/// A length of time as people write it: `300` (seconds), `90m`, `24h`, `7d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span(pub(super) Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let seconds = match &text[digits.len()..] {
            "" | "s" => 1,
            "m" => 60,
            "h" => 60 * 60,
            "d" => 24 * 60 * 60,
            _ => {
                return Err(format!(
                    "`{text}` is not a time: write 300s, 90m, 24h or 7d"
                ));
            }
        };
        let number: u64 = digits
            .trim()
            .parse()
            .map_err(|_| format!("`{text}` is not a time: write 300s, 90m, 24h or 7d"))?;
        let total = number
            .checked_mul(seconds)
            .ok_or_else(|| format!("`{text}` is too long"))?;
        Ok(Self(Duration::from_secs(total)))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Seconds(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Seconds(seconds) => Ok(Self(Duration::from_secs(seconds))),
            Written::Text(text) => text.parse().map_err(de::Error::custom),
        }
    }
}
