//! A server's names, in a file that every user of its machine may read.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
};

use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::{At, Error, Result};

/// Beside the CA's certificate in the data folder.
pub const NAMES_FILE: &str = "names.json";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// Sandboxes are `<port>-<id>.<domain>`.
    pub domain: String,
    pub https_port: u16,
    /// Where the server is.
    pub address: IpAddr,
    /// Where it answers questions for its names.
    pub dns: Option<SocketAddr>,
    /// Whether its certificate is of its own CA, which nobody trusts yet.
    pub local_ca: bool,
}

impl Names {
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).at(path)?;
        serde_json::from_str(&text)
            .map_err(std::io::Error::from)
            .at(path)
            .and_then(Self::checked)
    }

    /// It ends up in files of the system: nothing but a name may be in it.
    fn checked(self) -> Result<Self> {
        let label = |label: &str| {
            !label.is_empty()
                && label
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        };
        if self.domain.len() > 253 || !self.domain.split('.').all(label) {
            let problem = format!("{:?} is not a domain", self.domain);
            return Err(Error::impossible(problem, "give the server's --domain"));
        }
        Ok(self)
    }

    /// For a server that is known by its URL alone.
    pub fn of(
        domain: &str,
        https_port: u16,
        address: IpAddr,
        dns: Option<SocketAddr>,
        local_ca: bool,
    ) -> Result<Self> {
        Self {
            domain: domain.to_ascii_lowercase(),
            https_port,
            address,
            dns,
            local_ca,
        }
        .checked()
    }

    /// A name that no sandbox has.
    pub fn probe(&self) -> String {
        format!("8000-trust.{}", self.domain)
    }

    /// Names under `localhost` are the machine that asks, wherever the server is.
    pub fn is_localhost(&self) -> bool {
        self.domain == "localhost" || self.domain.ends_with(".localhost")
    }

    pub(crate) fn is_here(&self) -> bool {
        self.address == IpAddr::V4(Ipv4Addr::LOCALHOST) || self.address.is_loopback()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_domain_never_reaches_a_file_of_the_system() {
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        for bad in [
            "",
            "a..b",
            "a b",
            "x\nnameserver 192.0.2.1",
            "a/b",
            "ä.example",
        ] {
            assert!(Names::of(bad, 443, here, None, true).is_err(), "{bad:?}");
        }
        assert_eq!(
            Names::of("SBX.localhost", 443, here, None, true)
                .unwrap()
                .domain,
            "sbx.localhost"
        );
    }
}
