//! Which sandbox and port a request is for, decided by its head alone.
//!
//! On a host `<port>-<id>.<anything>` the host decides and routing headers are ignored, so that a
//! page of one sandbox cannot steer its visitor's requests to another. On a shared host
//! (`localhost`, an address, `sandbox.…`, a bare name such as a container's, or the domain itself)
//! the two routing headers decide, or the signature of a file URL, or the token of a request for envd.
//! Everything else is not for us.
//!
//! A request with an API key is for the API, whatever routing headers it has: E2B's Python SDK 2.7
//! to 2.26 sends them with `POST /sandboxes/ID/connect`, and requests to envd never have a key.

use std::net::IpAddr;

use http::{HeaderMap, Method, Uri, header};
use soulbox_types::{SandboxId, Secret};

use crate::{
    signature::{NotSigned, SignedFile},
    token_route::token_of,
};

const SANDBOX_ID_HEADER: &str = "e2b-sandbox-id";
const SANDBOX_PORT_HEADER: &str = "e2b-sandbox-port";
const API_KEY_HEADER: &str = "x-api-key";
/// Other keys in that header are for a server inside the sandbox.
const API_KEY_PREFIX: &str = "e2b_";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    /// Not data-plane traffic.
    NotOurs,
    To(Target),
    /// The sandbox is the one whose token made this signature.
    Signed(SignedFile),
    /// The sandbox is the one that this token belongs to.
    Token(Secret),
    Bad(&'static str),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) id: SandboxId,
    pub(crate) port: u16,
}

pub(crate) fn route(domain: &str, method: &Method, uri: &Uri, headers: &HeaderMap) -> Route {
    let host = host(uri, headers).map(|host| without_port(host).to_ascii_lowercase());
    let host = host.as_deref().unwrap_or("");
    if let Some(by_host) = route_by_host(host, domain) {
        return by_host;
    }
    if !is_shared(host, domain) || has_api_key(headers) {
        return Route::NotOurs;
    }
    match (
        headers.get(SANDBOX_ID_HEADER),
        headers.get(SANDBOX_PORT_HEADER),
    ) {
        (Some(id), Some(port)) => target(
            id.to_str().unwrap_or(""),
            port.to_str().unwrap_or("").trim(),
        ),
        (Some(_), None) => Route::Bad("the header E2b-Sandbox-Port is missing"),
        (None, Some(_)) => Route::Bad("the header E2b-Sandbox-Id is missing"),
        (None, None) => match SignedFile::of(method, uri) {
            Ok(file) => Route::Signed(file),
            Err(NotSigned::Unsigned) => match token_of(uri, headers) {
                Some(token) => Route::Token(Secret::new(token)),
                None => Route::NotOurs,
            },
            Err(NotSigned::TooLong(text)) => Route::Bad(text),
        },
    }
}

/// The host that the client asked for, as written, with its port.
pub(crate) fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    uri.authority()
        .map(|authority| {
            let text = authority.as_str();
            text.rsplit_once('@').map_or(text, |(_, host)| host)
        })
        .or_else(|| headers.get(header::HOST)?.to_str().ok())
}

fn without_port(host: &str) -> &str {
    if host.starts_with('[') {
        return host
            .split_once(']')
            .map_or(host, |(address, _)| &address[1..]);
    }
    match host.rsplit_once(':') {
        // A bare IPv6 address has several colons and no port.
        Some((name, port)) if !name.contains(':') && port.bytes().all(|b| b.is_ascii_digit()) => {
            name
        }
        _ => host,
    }
}

/// `None`: the host does not look like `<port>-<id>.…` at all.
fn route_by_host(host: &str, domain: &str) -> Option<Route> {
    let (label, parent) = host.split_once('.')?;
    let (port, id) = label.split_once('-')?;
    let looks_right = !port.is_empty()
        && port.bytes().all(|b| b.is_ascii_digit())
        // Names like `127-0-0-1.example.org` stand for addresses.
        && id.matches('-').count() <= 1;
    // Below our own domain such a name cannot mean anything else, so a mistake in it is an error.
    (looks_right || parent == domain).then(|| target(id, port))
}

fn target(id: &str, port: &str) -> Route {
    // Old clients append the constant client id: `<id>-<client>`.
    let (id, client) = id.split_once('-').unwrap_or((id, ""));
    let (Ok(id), false) = (id.parse(), client.contains('-')) else {
        return Route::Bad("invalid sandbox ID");
    };
    // `parse` would take a sign as well.
    let digits = port.bytes().all(|b| b.is_ascii_digit());
    match port.parse() {
        Ok(port) if port != 0 && digits => Route::To(Target { id, port }),
        _ => Route::Bad("invalid sandbox port"),
    }
}

fn has_api_key(headers: &HeaderMap) -> bool {
    headers
        .get(API_KEY_HEADER)
        .is_some_and(|key| key.as_bytes().starts_with(API_KEY_PREFIX.as_bytes()))
}

fn is_shared(host: &str, domain: &str) -> bool {
    !host.contains('.') // localhost, a container's name, an IPv6 address, nothing
        || host.starts_with("sandbox.")
        || host == domain
        || host.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(host: &str, fields: &[(&'static str, &str)]) -> Route {
        ask_path(host, "/", fields)
    }

    fn ask_path(host: &str, path: &str, fields: &[(&'static str, &str)]) -> Route {
        let mut headers = HeaderMap::new();
        if !host.is_empty() {
            headers.insert(header::HOST, host.parse().unwrap());
        }
        for (name, value) in fields {
            headers.insert(*name, value.parse().unwrap());
        }
        route(
            "sbx.localhost",
            &Method::GET,
            &path.parse().unwrap(),
            &headers,
        )
    }

    fn to(id: &str, port: u16) -> Route {
        Route::To(Target {
            id: id.parse().unwrap(),
            port,
        })
    }

    #[test]
    fn the_left_most_label_names_port_and_sandbox() {
        assert_eq!(ask("3000-iabc.sbx.localhost", &[]), to("iabc", 3000));
        assert_eq!(ask("3000-iabc.example.org:3443", &[]), to("iabc", 3000));
        assert_eq!(ask("3000-IABC.Example.org", &[]), to("iabc", 3000));
        assert_eq!(
            ask("49983-iabc-6532622b.sbx.localhost", &[]),
            to("iabc", 49983)
        );
    }

    #[test]
    fn headers_cannot_override_a_sandbox_host() {
        let steer = [(SANDBOX_ID_HEADER, "iother"), (SANDBOX_PORT_HEADER, "80")];
        assert_eq!(ask("3000-iabc.sbx.localhost", &steer), to("iabc", 3000));
    }

    #[test]
    fn headers_route_on_shared_hosts() {
        let fields = [(SANDBOX_ID_HEADER, "iabc"), (SANDBOX_PORT_HEADER, "49983")];
        for host in [
            "localhost",
            "localhost:3000",
            "127.0.0.1:3000",
            "[::1]:3000",
            "10.1.2.3",
            "::1",
            "sandbox.example.org",
            "soulbox:3000",
            "sbx.localhost:3443",
            "",
        ] {
            assert_eq!(ask(host, &fields), to("iabc", 49983), "{host}");
        }
    }

    #[test]
    fn a_request_with_an_api_key_is_for_the_api_whatever_headers_it_has() {
        let with = |key| {
            [
                (SANDBOX_ID_HEADER, "iabc"),
                (SANDBOX_PORT_HEADER, "49983"),
                (API_KEY_HEADER, key),
            ]
        };
        let path = "/sandboxes/iabc/connect";
        for host in ["localhost:3000", "127.0.0.1:3000", "sbx.localhost:3443"] {
            assert_eq!(ask_path(host, path, &with("e2b_00ff")), Route::NotOurs);
            // What a server inside calls its key is none of our business.
            assert_eq!(ask_path(host, path, &with("sk-1")), to("iabc", 49983));
        }
        let host = "3000-iabc.sbx.localhost";
        assert_eq!(ask_path(host, path, &with("e2b_00ff")), to("iabc", 3000));
    }

    #[test]
    fn headers_are_ignored_on_other_names() {
        let fields = [(SANDBOX_ID_HEADER, "iabc"), (SANDBOX_PORT_HEADER, "49983")];
        assert_eq!(ask("api.sbx.localhost", &fields), Route::NotOurs);
        assert_eq!(ask("www.example.org", &fields), Route::NotOurs);
    }

    #[test]
    fn one_header_alone_is_an_error() {
        for field in [SANDBOX_ID_HEADER, SANDBOX_PORT_HEADER] {
            assert!(matches!(ask("localhost", &[(field, "1")]), Route::Bad(_)));
        }
    }

    #[test]
    fn bad_ports_and_ids_are_errors() {
        for host in [
            "0-iabc.x",
            "65536-iabc.x",
            "99999999999-iabc.x",
            "80-i_c.x",
            "80-.x",
        ] {
            assert!(matches!(ask(host, &[]), Route::Bad(_)), "{host}");
        }
        for host in [
            "x-iabc.sbx.localhost",
            "+80-iabc.sbx.localhost",
            "80-a-b-c.sbx.localhost",
        ] {
            assert!(matches!(ask(host, &[]), Route::Bad(_)), "{host}");
        }
        for (id, port) in [
            ("../x", "80"),
            ("iabc", "x"),
            ("iabc", "-1"),
            ("iabc", "+1"),
            ("", "80"),
        ] {
            let fields = [(SANDBOX_ID_HEADER, id), (SANDBOX_PORT_HEADER, port)];
            assert!(
                matches!(ask("localhost", &fields), Route::Bad(_)),
                "{id} {port}"
            );
        }
    }

    #[test]
    fn control_plane_requests_are_not_ours() {
        for host in [
            "localhost:3000",
            "api.sbx.localhost",
            "127-0-0-1.example.org",
            "a-b.example.org",
            "",
        ] {
            assert_eq!(ask_path(host, "/sandboxes", &[]), Route::NotOurs, "{host}");
        }
    }

    #[test]
    fn a_signed_file_url_is_ours_on_shared_hosts_only() {
        let path = "/files?path=a&signature=v1_x";
        assert!(matches!(
            ask_path("localhost:3000", path, &[]),
            Route::Signed(_)
        ));
        assert_eq!(ask_path("api.sbx.localhost", path, &[]), Route::NotOurs);
        assert_eq!(
            ask_path("localhost:3000", "/files?path=a", &[]),
            Route::NotOurs
        );
    }

    #[test]
    fn a_token_routes_to_envd_on_shared_hosts_where_nothing_else_names_the_sandbox() {
        let token = [("x-access-token", "secret")];
        let by_token = Route::Token(Secret::new("secret"));
        for path in [
            "/files?path=a",
            "/files/compose",
            "/health",
            "/metrics",
            "/envs",
            "/process.Process/Start",
            "/filesystem.Filesystem/ListDir",
        ] {
            assert_eq!(ask_path("localhost:3000", path, &token), by_token, "{path}");
            assert_eq!(ask_path("localhost:3000", path, &[]), Route::NotOurs);
            assert_eq!(ask_path("api.sbx.localhost", path, &token), Route::NotOurs);
            let host = "3000-iabc.sbx.localhost";
            assert_eq!(ask_path(host, path, &token), to("iabc", 3000));
            let key = [token[0], (API_KEY_HEADER, "e2b_00ff")];
            assert_eq!(ask_path("localhost", path, &key), Route::NotOurs);
        }
        for path in ["/", "/sandboxes", "/init", "/files/", "/v2/sandboxes"] {
            let route = ask_path("localhost:3000", path, &token);
            assert_eq!(route, Route::NotOurs, "{path}");
        }
    }

    #[test]
    fn two_tokens_name_no_sandbox() {
        let mut headers = HeaderMap::new();
        for token in ["one", "two"] {
            headers.append("x-access-token", token.parse().unwrap());
        }
        let uri = Uri::from_static("/files");
        assert_eq!(route("d", &Method::GET, &uri, &headers), Route::NotOurs);
    }

    #[test]
    fn the_target_of_an_absolute_request_wins_over_the_host_header() {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, "80-iother.x".parse().unwrap());
        let uri = "http://3000-iabc.x/".parse().unwrap();
        assert_eq!(route("d", &Method::GET, &uri, &headers), to("iabc", 3000));
    }
}
