use std::{net::SocketAddr, str::FromStr};

use serde::{Deserialize, Deserializer, de};

/// An address to listen on, or `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    Off,
    At(SocketAddr),
}

impl Endpoint {
    pub(super) fn local(port: u16) -> Self {
        Self::At(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    pub fn address(self) -> Option<SocketAddr> {
        match self {
            Self::Off => None,
            Self::At(address) => Some(address),
        }
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("off") {
            return Ok(Self::Off);
        }
        let address = text
            .parse()
            .map_err(|_| format!("`{text}` is neither ADDRESS:PORT nor off"))?;
        Ok(Self::At(address))
    }
}

impl<'de> Deserialize<'de> for Endpoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}
