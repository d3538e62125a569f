//! Under which name a client reaches its sandboxes: the one under which it reached us.

use std::net::IpAddr;

use http::{HeaderMap, Uri, header::HOST};

/// `api.X[:port]` gives `X[:port]`; any other host says nothing, and the configured domain holds.
pub(crate) fn of_request(uri: &Uri, headers: &HeaderMap, configured: &str) -> String {
    let host = uri
        .authority()
        .map(http::uri::Authority::as_str)
        .or_else(|| headers.get(HOST).and_then(|value| value.to_str().ok()));
    host.and_then(base_of)
        .unwrap_or_else(|| configured.to_owned())
}

fn base_of(host: &str) -> Option<String> {
    let host = host.to_ascii_lowercase();
    let base = host.strip_prefix("api.")?;
    let name = match base.rsplit_once(':') {
        Some((name, port)) => {
            port.parse::<u16>().ok()?;
            name
        }
        None => base,
    };
    let is_name = !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.')
        && name.parse::<IpAddr>().is_err();
    is_name.then(|| base.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domain(host: &str) -> String {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        of_request(&Uri::from_static("/sandboxes"), &headers, "configured:1")
    }

    #[test]
    fn the_host_is_followed_when_it_is_an_api_name() {
        assert_eq!(domain("api.sbx.localhost:3443"), "sbx.localhost:3443");
        assert_eq!(domain("API.Example.com"), "example.com");
    }

    #[test]
    fn http2_has_the_host_in_the_uri() {
        let uri = Uri::from_static("https://api.example.com:8443/sandboxes");
        assert_eq!(of_request(&uri, &HeaderMap::new(), "x"), "example.com:8443");
    }

    #[test]
    fn other_hosts_give_the_configured_domain() {
        for host in [
            "127.0.0.1:3000",
            "localhost",
            "api.",
            "api.x:y",
            "api.10.0.0.1",
            "a.b",
        ] {
            assert_eq!(domain(host), "configured:1", "{host}");
        }
    }
}
