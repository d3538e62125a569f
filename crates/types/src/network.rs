//! What a sandbox may reach, and who may reach it.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::RangeInclusive,
    str::FromStr,
};

use serde::{Deserialize, Serialize};

use crate::DomainPattern;

/// The network settings of a sandbox, as its owner wrote them. Private ranges, the host and other
/// sandboxes are always closed (unless the operator opened a range for the whole node).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkPolicy {
    /// `None`: the caller said nothing, which means allowed; the difference is reported back.
    pub allow_internet: Option<bool>,
    /// Wins over `deny_out`. Every entry reads as a [`Destination`].
    pub allow_out: Vec<String>,
    pub deny_out: Vec<String>,
    /// `Some(false)`: ports other than envd's ask for the traffic token.
    pub allow_public_traffic: Option<bool>,
    /// The `Host` that servers inside see; `${PORT}` stands for their port.
    pub mask_request_host: Option<String>,
    /// Ports on which servers inside speak TLS.
    pub https_ports: Vec<u16>,
}

impl NetworkPolicy {
    pub fn internet(&self) -> bool {
        self.allow_internet.unwrap_or(true)
    }

    pub fn is_public(&self) -> bool {
        self.allow_public_traffic.unwrap_or(true)
    }
}

/// What an entry of `allow_out` or `deny_out` names: addresses, addresses with ports, or (only in
/// `allow_out`) hosts by their names.
///
/// ```text
/// 1.1.1.1   1.1.0.0/16   1.1.1.1:443   1.1.0.0/16:8000-8999   2606:4700::/32   example.com   *.example.com
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    V4 {
        /// First address of the block.
        address: Ipv4Addr,
        prefix: u8,
        /// `None`: all, and protocols without ports.
        ports: Option<RangeInclusive<u16>>,
    },
    /// IPv6 is closed in sandboxes, so such an entry is valid and changes nothing.
    V6(Ipv6Addr),
    Name(DomainPattern),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is neither an IP address, nor a CIDR range, nor a domain name such as example.com or \
     *.example.com"
)]
pub struct NotADestination(String);

impl FromStr for Destination {
    type Err = NotADestination;

    fn from_str(text: &str) -> Result<Self, NotADestination> {
        let name = || text.parse().ok().map(Self::Name);
        read(text)
            .or_else(name)
            .ok_or_else(|| NotADestination(text.to_owned()))
    }
}

impl Destination {
    /// Whether it starts with the address that means none in particular.
    pub fn is_unspecified(&self) -> bool {
        match self {
            Self::V4 { address, .. } => address.is_unspecified(),
            Self::V6(address) => address.is_unspecified(),
            Self::Name(_) => false,
        }
    }
}

fn read(text: &str) -> Option<Destination> {
    // Two colons or more are IPv6, which has no form with ports here.
    let (range, ports) = match text.split_once(':') {
        Some((range, ports)) if !ports.contains(':') && range.contains('.') => {
            (range, Some(read_ports(ports)?))
        }
        _ => (text, None),
    };
    let (address, prefix) = match range.split_once('/') {
        Some((address, prefix)) => (address, Some(read_number::<u8>(prefix)?)),
        None => (range, None),
    };
    match address.parse().ok()? {
        IpAddr::V4(address) => {
            let prefix = prefix.unwrap_or(32);
            let host_bits = 32_u32.checked_sub(prefix.into())?;
            let mask = u32::MAX.checked_shl(host_bits).unwrap_or(0);
            Some(Destination::V4 {
                address: Ipv4Addr::from(u32::from(address) & mask),
                prefix,
                ports,
            })
        }
        IpAddr::V6(address) => prefix
            .is_none_or(|prefix| prefix <= 128)
            .then_some(Destination::V6(address)),
    }
}

fn read_ports(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (read_number(first)?, read_number(last)?);
    (0 < first && first <= last).then_some(first..=last)
}

/// Digits only: `parse` would take a sign as well.
fn read_number<T: FromStr>(text: &str) -> Option<T> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(text: &str) -> (String, u8, Option<RangeInclusive<u16>>) {
        match text.parse() {
            Ok(Destination::V4 {
                address,
                prefix,
                ports,
            }) => (address.to_string(), prefix, ports),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn addresses_ranges_and_ports_are_read() {
        assert_eq!(v4("1.1.1.1"), ("1.1.1.1".to_owned(), 32, None));
        assert_eq!(v4("0.0.0.0/0"), ("0.0.0.0".to_owned(), 0, None));
        assert_eq!(v4("8.8.8.8:53"), ("8.8.8.8".to_owned(), 32, Some(53..=53)));
        assert_eq!(
            v4("8.8.0.0/16:8000-8999"),
            ("8.8.0.0".to_owned(), 16, Some(8000..=8999))
        );
        assert_eq!(
            v4("8.8.7.6/16"),
            ("8.8.0.0".to_owned(), 16, None),
            "host bits are cleared"
        );
        for text in ["2606:4700::/32", "::1"] {
            assert!(matches!(text.parse(), Ok(Destination::V6(_))), "{text}");
        }
    }

    #[test]
    fn names_are_read() {
        for text in ["example.com", "*.example.com", "*"] {
            let Ok(Destination::Name(name)) = text.parse() else {
                panic!("{text}")
            };
            assert_eq!(name.to_string(), text);
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "",
            "example.com:443",
            "a.*.com",
            "1.1.1",
            "1.1.1.1/33",
            "1.1.1.1/+8",
            "1.1.1.1/",
            "1.1.1.1:",
            "1.1.1.1:0",
            "1.1.1.1:70000",
            "1.1.1.1:9-8",
            "1.1.1.1:+80",
            "::1/129",
            " 1.1.1.1",
            "[::1]:80",
        ] {
            assert!(text.parse::<Destination>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_policy_from_before_these_settings_is_still_read() {
        let old: NetworkPolicy = serde_json::from_str(r#"{"allow_internet":false}"#).unwrap();
        assert!(!old.internet() && old.is_public() && old.allow_out.is_empty());
    }
}
