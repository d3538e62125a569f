//! Where a webhook goes. Tenants write these addresses: they must not lead into the operator's
//! own network.

use std::net::{IpAddr, Ipv6Addr};

use http::Uri;
use soulbox_outgoing::is_public;

use crate::{Error, Result};

const MAX_URL: usize = 2048;

#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) https: bool,
    /// Without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// As it was written, for the `Host` header.
    pub(crate) authority: String,
    pub(crate) path: String,
}

impl Target {
    pub(crate) fn parse(url: &str, allow_private: bool) -> Result<Self> {
        let bad = |why: &str| Error::Invalid(format!("url: {why}"));
        if url.len() > MAX_URL {
            return Err(bad("it is too long"));
        }
        let uri: Uri = url.parse().map_err(|_| bad("it is not a URL"))?;
        let https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(bad("it must begin with https:// or http://")),
        };
        let authority = uri.authority().ok_or_else(|| bad("it has no host"))?;
        if authority.as_str().contains('@') {
            return Err(bad("it must not contain a user or password"));
        }
        // Brackets are for IPv6 addresses, and for nothing else.
        let host = match authority.host().strip_prefix('[') {
            Some(rest) => rest
                .strip_suffix(']')
                .filter(|host| host.parse::<Ipv6Addr>().is_ok()),
            None => Some(authority.host()).filter(|host| !host.contains(['[', ']'])),
        };
        let host = host
            .filter(|host| !host.is_empty())
            .ok_or_else(|| bad("it has no host"))?
            .to_owned();
        let address = host.parse::<IpAddr>();
        if !allow_private && address.is_ok_and(|address| !is_public(address)) {
            return Err(bad("private and local addresses are not allowed"));
        }
        // After the host comes `:` and a port, if anything.
        let after_host = authority.as_str().strip_prefix(authority.host());
        let port = match after_host.unwrap_or_default() {
            "" | ":" if https => 443,
            "" | ":" => 80,
            _ => authority
                .port_u16()
                .ok_or_else(|| bad("its port is not a number up to 65535"))?,
        };
        Ok(Self {
            https,
            host,
            port,
            authority: authority.as_str().to_owned(),
            path: uri
                .path_and_query()
                .map_or_else(|| "/".to_owned(), ToString::to_string),
        })
    }
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_machines_networks_and_metadata_services_are_not_public() {
        for private in [
            "127.0.0.1",
            "0.0.0.0",
            "10.1.2.3",
            "172.31.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "168.63.129.16",
            "64:ff9b:1::1",
            "3fff::1",
            "100.64.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "64:ff9b::a00:1",
            "2002:a00:1::",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
        for public in ["1.1.1.1", "172.32.0.1", "2606:4700::1111", "::ffff:8.8.8.8"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
    }

    #[test]
    fn a_target_is_an_http_url_without_credentials() {
        let target = Target::parse("https://example.com:8443/hook?a=b", false).unwrap();
        assert_eq!(
            (target.host.as_str(), target.port, target.path.as_str()),
            ("example.com", 8443, "/hook?a=b")
        );
        let target = Target::parse("http://example.com", false).unwrap();
        assert_eq!((target.port, target.path.as_str()), (80, "/"));
        for bad in [
            "",
            "example.com",
            "ftp://example.com",
            "https://",
            "https://u:p@example.com",
            "http://127.0.0.1/",
            "http://[::1]:80/",
            "https://10.0.0.1/x",
            "http:// x",
            "https://example.com:65536/",
            "https://example.com:443x/",
            "https://example[]/",
            "https://[example.com]/",
        ] {
            assert!(Target::parse(bad, false).is_err(), "{bad}");
        }
        assert!(Target::parse("http://[::1]:80/", true).is_ok());
    }
}
