//! Removes headers of one hop, and adds those about the client.

use std::net::SocketAddr;

use http::{HeaderMap, HeaderName, HeaderValue, header};
use soulbox_types::NODE_TOKEN_HEADER;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// How the client reached us. The listener puts it into the request's extensions.
#[derive(Debug, Clone, Copy)]
pub struct ClientConnection {
    pub address: SocketAddr,
    pub tls: bool,
}

/// Headers for a single hop only. `trailer` stays, since trailers are passed on.
const HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// The protocol that the head asks to switch to.
pub(crate) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let asked = tokens(headers, &header::CONNECTION).any(|token| token == "upgrade");
    if asked {
        headers.get(header::UPGRADE).cloned()
    } else {
        None
    }
}

pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<String> = tokens(headers, &header::CONNECTION).collect();
    for name in named {
        // A sender may not use this to remove what describes the message itself.
        if !matches!(
            name.as_str(),
            "host" | "content-length" | "content-type" | "te"
        ) {
            headers.remove(name);
        }
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    let trailers = tokens(headers, &header::TE).any(|token| token.starts_with("trailers"));
    headers.remove(header::TE);
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

/// Rewrites a client's headers for the sandbox.
pub(crate) fn prepare_request(
    headers: &mut HeaderMap,
    host: Option<&str>,
    client: Option<&ClientConnection>,
) {
    let upgrade = upgrade(headers);
    strip_hop_by_hop(headers);
    headers.remove(NODE_TOKEN_HEADER); // only the node itself may show it
    headers.remove(header::EXPECT); // answered by the listener, as soon as the body is read
    if let Some(protocol) = upgrade {
        keep_upgrade(headers, protocol);
    }
    if let Some(host) = host.and_then(|host| HeaderValue::from_str(host).ok()) {
        if !headers.contains_key(X_FORWARDED_HOST) {
            headers.insert(X_FORWARDED_HOST, host.clone());
        }
        headers.insert(header::HOST, host);
    }
    join_cookies(headers);
    if let Some(client) = client {
        forwarded(headers, client);
    }
}

/// The server inside gets another `Host` than the client sent; that is in `X-Forwarded-Host`.
pub(crate) fn mask_host(headers: &mut HeaderMap, named: Option<&str>, mask: &HeaderValue) {
    if let Some(named) = named.and_then(|named| HeaderValue::from_str(named).ok()) {
        headers.insert(X_FORWARDED_HOST, named);
    }
    headers.insert(header::HOST, mask.clone());
}

/// Rewrites the headers of a server inside for the client. They are not trusted: an invalid length
/// would break the client's connection.
pub(crate) fn prepare_answer(headers: &mut HeaderMap) {
    let length = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok());
    let valid = length.is_some_and(|length| length.trim().parse::<u64>().is_ok());
    if !valid || headers.contains_key(header::TRANSFER_ENCODING) {
        headers.remove(header::CONTENT_LENGTH);
    }
    strip_hop_by_hop(headers);
}

pub(crate) fn keep_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, protocol);
}

/// HTTP/2 may split cookies into several fields; many HTTP/1.1 servers read only the first.
fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(header::COOKIE).iter().nth(1).is_none() {
        return;
    }
    let parts: Vec<&[u8]> = headers
        .get_all(header::COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if let Ok(joined) = HeaderValue::from_bytes(&parts.join(&b"; "[..])) {
        headers.insert(header::COOKIE, joined);
    }
}

fn forwarded(headers: &mut HeaderMap, client: &ClientConnection) {
    let address = client.address.ip().to_canonical().to_string();
    let mut chain: Vec<&str> = headers
        .get_all(X_FORWARDED_FOR)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    chain.push(&address);
    if let Ok(chain) = HeaderValue::from_str(&chain.join(", ")) {
        headers.insert(X_FORWARDED_FOR, chain);
    }
    if !headers.contains_key(X_FORWARDED_PROTO) {
        let proto = if client.tls { "https" } else { "http" };
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(proto));
    }
}

fn tokens(headers: &HeaderMap, name: &HeaderName) -> impl Iterator<Item = String> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|token| token.trim().to_ascii_lowercase())
        .filter(|token| !token.is_empty())
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn client() -> ClientConnection {
        ClientConnection {
            address: "192.0.2.7:5".parse().unwrap(),
            tls: true,
        }
    }

    #[test]
    fn headers_about_the_connection_stay_behind() {
        let mut map = headers(&[
            ("connection", "close, X-Private"),
            ("x-private", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("te", "gzip, trailers"),
            ("x-public", "1"),
        ]);
        strip_hop_by_hop(&mut map);
        assert_eq!(map, headers(&[("te", "trailers"), ("x-public", "1")]));
    }

    #[test]
    fn the_node_token_never_comes_from_a_client() {
        let mut map = headers(&[
            ("x-soulbox-node-token", "stolen"),
            ("x-access-token", "own"),
        ]);
        prepare_request(&mut map, None, None);
        assert_eq!(map, headers(&[("x-access-token", "own")]));
    }

    #[test]
    fn the_host_is_kept_and_the_client_is_named() {
        let mut map = headers(&[("x-forwarded-for", "203.0.113.1"), ("host", "old")]);
        prepare_request(&mut map, Some("80-iabc.x:3443"), Some(&client()));
        assert_eq!(map["host"], "80-iabc.x:3443");
        assert_eq!(map["x-forwarded-host"], "80-iabc.x:3443");
        assert_eq!(map["x-forwarded-for"], "203.0.113.1, 192.0.2.7");
        assert_eq!(map["x-forwarded-proto"], "https");
    }

    #[test]
    fn a_request_to_upgrade_is_kept() {
        let mut map = headers(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
        ]);
        prepare_request(&mut map, None, None);
        assert_eq!(
            map,
            headers(&[("connection", "upgrade"), ("upgrade", "websocket")])
        );
        assert_eq!(upgrade(&headers(&[("upgrade", "h2c")])), None);
    }

    #[test]
    fn split_cookies_are_joined() {
        let mut map = headers(&[("cookie", "a=1"), ("cookie", "b=2")]);
        prepare_request(&mut map, None, None);
        assert_eq!(map, headers(&[("cookie", "a=1; b=2")]));
    }
}
