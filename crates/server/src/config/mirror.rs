use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};

/// A mirror for the images of a registry: `docker.io=http://127.0.0.1:5000`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    pub registry: String,
    pub url: String,
}

impl FromStr for Mirror {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is not NAME=URL, such as docker.io=https://mirror.example");
        let (registry, url) = text.split_once('=').ok_or_else(wrong)?;
        let host = url
            .strip_prefix("http://")
            .or_else(|| url.strip_prefix("https://"));
        let named = |host: &str| !host.is_empty() && !host.contains([' ', '@', '?', '#']);
        if registry.is_empty() || registry.contains('/') || !host.is_some_and(named) {
            return Err(wrong());
        }
        Ok(Self {
            registry: registry.to_ascii_lowercase(),
            url: url.trim_end_matches('/').to_owned(),
        })
    }
}

impl<'de> Deserialize<'de> for Mirror {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirror_is_a_registry_and_a_url() {
        let mirror: Mirror = "Docker.io=http://127.0.0.1:5000/".parse().unwrap();
        assert_eq!(mirror.registry, "docker.io");
        assert_eq!(mirror.url, "http://127.0.0.1:5000");
        for bad in [
            "",
            "docker.io",
            "=http://x",
            "docker.io=ftp://x",
            "docker.io=https://",
            "a/b=http://x",
        ] {
            assert!(bad.parse::<Mirror>().is_err(), "{bad}");
        }
    }
}
