//! What holds of whatever a client writes into the head of a request.

use http::HeaderValue;
use proptest::{option, prelude::*, sample::select};

use super::*;

const DOMAIN: &str = "sbx.localhost";

fn host() -> impl Strategy<Value = String> {
    let port = prop_oneof![4 => "[0-9]{1,6}", 1 => "[+ -]?[0-9a-z]{0,5}"];
    let id = prop_oneof![4 => "i[a-z0-9]{1,20}", 1 => "[a-zA-Z0-9_-]{0,45}"];
    let client = option::weighted(0.2, "-[a-z0-9-]{0,8}");
    let parent = select(vec![
        "",
        ".",
        ".sbx.localhost",
        ".SBX.localhost",
        ".example.org",
        ".sbx.localhost:3443",
        ":80",
        ".x@80-iother.x",
        ".x:80:80",
    ]);
    let likely = (port, id, client, parent).prop_map(|(port, id, client, parent)| {
        format!("{port}-{id}{}{parent}", client.unwrap_or_default())
    });
    let shared = select(vec![
        "localhost",
        "127.0.0.1:3000",
        "[::1]:3000",
        "::1",
        "sandbox.example.org",
        "sbx.localhost",
        "soulbox",
        "",
        "api.sbx.localhost",
        "www.example.org",
        "[",
        "[]",
        "]",
        ":",
        "[80-iabc.x]",
    ]);
    prop_oneof![
        4 => likely,
        2 => shared.prop_map(str::to_owned),
        1 => "[ -~]{0,20}",
    ]
}

fn ask(host: &str, fields: &[(&'static str, &str)]) -> Route {
    let mut headers = HeaderMap::new();
    let value = |text: &str| HeaderValue::from_str(text).unwrap();
    headers.insert(header::HOST, value(host));
    for (name, text) in fields {
        headers.insert(*name, value(text));
    }
    route(DOMAIN, &Method::GET, &Uri::from_static("/"), &headers)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases * 4,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_host_leads_only_to_the_sandbox_and_port_that_it_names(host in host()) {
        if let Route::To(Target { id, port }) = ask(&host, &[]) {
            let host = host.to_ascii_lowercase();
            let (label, _) = host.trim_start_matches('[').split_once('.').unwrap();
            let (written, rest) = label.split_once('-').unwrap();
            prop_assert!(written.bytes().all(|byte| byte.is_ascii_digit()), "{written}");
            prop_assert_eq!(written.parse::<u16>().unwrap(), port);
            let (named, _client) = rest.split_once('-').unwrap_or((rest, ""));
            prop_assert_eq!(named, id.as_str());
            prop_assert!(port != 0);
        }
    }

    #[test]
    fn headers_never_lead_elsewhere_than_a_host_that_names_a_sandbox(host in host()) {
        let alone = ask(&host, &[]);
        let steered = ask(&host, &[(SANDBOX_ID_HEADER, "iother"), (SANDBOX_PORT_HEADER, "81")]);
        if alone == Route::NotOurs {
            let other = Route::To(Target { id: "iother".parse().unwrap(), port: 81 });
            prop_assert!(steered == Route::NotOurs || steered == other);
        } else {
            prop_assert_eq!(steered, alone);
        }
    }

    #[test]
    fn headers_lead_only_where_they_say(
        id in prop_oneof!["i[a-z0-9]{1,20}", "[ -~]{0,12}"],
        port in prop_oneof!["[0-9]{1,6}", " ?[+-]?[0-9]{1,3}", "[ -~]{0,6}"],
    ) {
        let fields = [(SANDBOX_ID_HEADER, id.as_str()), (SANDBOX_PORT_HEADER, port.as_str())];
        match ask("localhost", &fields) {
            Route::To(target) => {
                prop_assert_eq!(id.split('-').next().unwrap(), target.id.as_str());
                let digits = port.trim();
                prop_assert!(digits.bytes().all(|byte| byte.is_ascii_digit()), "{port}");
                prop_assert_eq!(digits.parse::<u16>().unwrap(), target.port);
            }
            other => prop_assert!(matches!(other, Route::Bad(_)), "{other:?}"),
        }
    }

    #[test]
    fn any_head_has_a_route(
        uri in "(http://[a-z0-9@.:-]{1,20})?/(files)?(\\?[ -~&&[^#\"<>`{}]]{0,40})?",
        host in proptest::collection::vec(any::<u8>(), 0..20),
    ) {
        let Ok(uri) = uri.parse::<Uri>() else {
            return Ok(());
        };
        let mut headers = HeaderMap::new();
        if let Ok(host) = HeaderValue::from_bytes(&host) {
            headers.insert(header::HOST, host);
        }
        for method in [Method::GET, Method::POST, Method::OPTIONS] {
            let routed = route(DOMAIN, &method, &uri, &headers);
            if matches!(routed, Route::Signed(_)) {
                prop_assert_eq!(uri.path(), "/files");
            }
        }
    }
}
