//! Where the server answers questions for its names.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{Endpoint, Settings};

/// On the loopback, on the port that every resolver asks, and at an address of which nobody else has
/// thought: 83 and 66 are S and B.
const USUAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 83, 66)), 53);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameServer {
    pub listen: SocketAddr,
    pub answer: IpAddr,
    /// Otherwise the server starts without it when the address is taken.
    pub is_required: bool,
}

impl NameServer {
    /// Without HTTPS there is nothing that has a name.
    pub(super) fn of(settings: &Settings, https: Option<SocketAddr>) -> Option<Self> {
        let listen = match settings.dns {
            Some(endpoint) => endpoint.address()?,
            None => USUAL,
        };
        let answer = settings.dns_answer.or(https.map(|address| address.ip()))?;
        let answer = if answer.is_unspecified() {
            Ipv4Addr::LOCALHOST.into()
        } else {
            answer
        };
        Some(Self {
            listen,
            answer,
            is_required: matches!(settings.dns, Some(Endpoint::At(_))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_answered_with_the_address_of_https() {
        let of = |https: &str, settings| NameServer::of(&settings, https.parse().ok());
        let usual = of("127.0.0.1:3443", Settings::default()).unwrap();
        assert_eq!(usual.listen, USUAL);
        assert!(!usual.is_required && usual.answer.is_loopback());
        let everywhere = of("0.0.0.0:443", Settings::default()).unwrap();
        assert_eq!(everywhere.answer, Ipv4Addr::LOCALHOST);
        assert_eq!(of("none", Settings::default()), None);
        let off = Settings {
            dns: Some(Endpoint::Off),
            ..Settings::default()
        };
        assert_eq!(of("127.0.0.1:3443", off), None);
        let given = Settings {
            dns: Some(Endpoint::At("192.0.2.1:53".parse().unwrap())),
            dns_answer: "192.0.2.7".parse().ok(),
            ..Settings::default()
        };
        let given = of("0.0.0.0:443", given).unwrap();
        assert!(given.is_required);
        assert_eq!(given.answer.to_string(), "192.0.2.7");
    }
}
