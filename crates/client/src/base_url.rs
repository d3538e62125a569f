//! Where requests go: a scheme and authority, and the Host under which the server's proxy
//! believes our routing headers.

use std::{fmt, net::IpAddr, str::FromStr};

use http::{HeaderValue, Uri, uri::Authority};

/// The server finds sandboxes under any domain; this is its default one.
const LOCAL_DOMAIN: &str = "sbx.localhost";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl {
    scheme: &'static str,
    authority: Authority,
    /// Without a trailing slash; usually empty.
    prefix: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a URL such as http://127.0.0.1:3000")]
pub struct InvalidUrl {
    text: String,
}

impl FromStr for BaseUrl {
    type Err = InvalidUrl;

    fn from_str(text: &str) -> Result<Self, InvalidUrl> {
        let invalid = || InvalidUrl {
            text: text.to_owned(),
        };
        let uri: Uri = text.trim().parse().map_err(|_| invalid())?;
        let scheme = match uri.scheme_str() {
            Some("http") => "http",
            Some("https") => "https",
            _ => return Err(invalid()),
        };
        let authority = uri.authority().cloned().ok_or_else(invalid)?;
        if authority.host().is_empty() || authority.as_str().contains('@') || uri.query().is_some()
        {
            return Err(invalid());
        }
        Ok(Self {
            scheme,
            authority,
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority, self.prefix)
    }
}

impl BaseUrl {
    /// `path_and_query` begins with a slash and is already percent-encoded.
    pub(crate) fn join(&self, path_and_query: &str) -> Result<Uri, http::Error> {
        Uri::builder()
            .scheme(self.scheme)
            .authority(self.authority.clone())
            .path_and_query(format!("{}{path_and_query}", self.prefix))
            .build()
    }

    pub fn is_https(&self) -> bool {
        self.scheme == "https"
    }

    /// Without the brackets of an IPv6 address.
    pub fn host_and_port(&self) -> (String, u16) {
        let host = self.authority.host();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let implied = if self.is_https() { 443 } else { 80 };
        (
            host.to_owned(),
            self.authority.port_u16().unwrap_or(implied),
        )
    }

    /// What `E2B_DOMAIN` is for a server at `api.<domain>`, without the port.
    pub fn domain(&self) -> Option<&str> {
        self.authority.host().strip_prefix("api.")
    }

    /// A URL whose host names a sandbox and a port. What is at an address has no names, except on this
    /// machine, where all names under `localhost` lead to it.
    pub(crate) fn port_url(&self, id: &str, port: u16) -> Option<String> {
        let host = self.authority.host();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let domain = match bare.parse::<IpAddr>() {
            Ok(address) if address.is_loopback() => LOCAL_DOMAIN,
            Ok(_) => return None,
            Err(_) if host == "localhost" => LOCAL_DOMAIN,
            Err(_) => ["api.", "sandbox."]
                .iter()
                .find_map(|prefix| host.strip_prefix(prefix))
                .unwrap_or(host),
        };
        let server_port = self.authority.port_u16();
        let server_port = server_port.map_or_else(String::new, |port| format!(":{port}"));
        Some(format!(
            "{}://{port}-{id}.{domain}{server_port}",
            self.scheme
        ))
    }

    /// The proxy honours routing headers on `localhost`, addresses and `sandbox.*` names only; on
    /// any other name we keep the address and say `sandbox.<domain>` in Host, which needs no DNS.
    pub(crate) fn routing_host(&self) -> Option<HeaderValue> {
        let host = self.authority.host();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        if host == "localhost" || host.starts_with("sandbox.") || bare.parse::<IpAddr>().is_ok() {
            return None;
        }
        let domain = host.strip_prefix("api.").unwrap_or(host);
        let port = self
            .authority
            .port_u16()
            .map_or_else(String::new, |port| format!(":{port}"));
        HeaderValue::try_from(format!("sandbox.{domain}{port}")).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailing_slashes_do_not_double() {
        let base: BaseUrl = "http://localhost:3000/".parse().unwrap();
        assert_eq!(
            base.join("/health").unwrap(),
            "http://localhost:3000/health"
        );
        assert_eq!(base.to_string(), "http://localhost:3000");
    }

    #[test]
    fn other_schemes_and_credentials_are_refused() {
        for bad in [
            "localhost:3000",
            "ftp://a",
            "http://",
            "http://user:pw@host",
            "http://a?b",
            "",
        ] {
            assert!(bad.parse::<BaseUrl>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_port_has_a_url_where_there_are_names() {
        let url = |base: &str| base.parse::<BaseUrl>().unwrap().port_url("iabc", 8000);
        for (base, expected) in [
            (
                "http://127.0.0.1:3000",
                "http://8000-iabc.sbx.localhost:3000",
            ),
            ("http://[::1]:3000", "http://8000-iabc.sbx.localhost:3000"),
            (
                "http://localhost:3000",
                "http://8000-iabc.sbx.localhost:3000",
            ),
            ("https://api.example.com", "https://8000-iabc.example.com"),
            (
                "https://sandbox.example.com",
                "https://8000-iabc.example.com",
            ),
            (
                "https://api.sbx.localhost:3443",
                "https://8000-iabc.sbx.localhost:3443",
            ),
            ("http://box.lan:3000", "http://8000-iabc.box.lan:3000"),
        ] {
            assert_eq!(url(base).as_deref(), Some(expected));
        }
        assert_eq!(url("http://10.1.2.3:3000"), None);
    }

    #[test]
    fn names_get_a_routing_host_and_addresses_do_not() {
        let host = |url: &str| url.parse::<BaseUrl>().unwrap().routing_host();
        assert_eq!(host("http://127.0.0.1:3000"), None);
        assert_eq!(host("http://[::1]:3000"), None);
        assert_eq!(host("http://localhost:3000"), None);
        assert_eq!(host("https://sandbox.example.com"), None);
        assert_eq!(
            host("https://api.sbx.localhost:3443").unwrap(),
            "sandbox.sbx.localhost:3443"
        );
        assert_eq!(host("http://box.lan:3000").unwrap(), "sandbox.box.lan:3000");
    }
}
