//! What holds of whatever stands in the head of a request or an answer.

use proptest::{collection::vec, prelude::*, sample::select};

use super::*;

fn head() -> impl Strategy<Value = HeaderMap> {
    let name = select(vec![
        "connection",
        "upgrade",
        "te",
        "keep-alive",
        "transfer-encoding",
        "content-length",
        "host",
        "cookie",
        "x-soulbox-node-token",
        "x-forwarded-for",
        "x-a",
        "expect",
        "proxy-authorization",
    ]);
    let value = prop_oneof![
        4 => "(close|upgrade|X-A|host|te|trailers|content-length|[0-9]{1,3}|, ?|x-soulbox-node-token){0,4}"
            .prop_map(String::into_bytes),
        1 => vec(any::<u8>(), 0..10),
    ];
    vec((name, value), 0..8).prop_map(|fields| {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                headers.append(name, value);
            }
        }
        headers
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_about_the_connection_is_passed_on(head in head()) {
        let mut stripped = head.clone();
        strip_hop_by_hop(&mut stripped);
        for name in &HOP_BY_HOP {
            prop_assert!(!stripped.contains_key(name), "{name}");
        }
        prop_assert_eq!(stripped.contains_key("content-length"), head.contains_key("content-length"));
        prop_assert_eq!(stripped.contains_key("host"), head.contains_key("host"));
        let mut again = stripped.clone();
        strip_hop_by_hop(&mut again);
        prop_assert_eq!(again, stripped);
    }

    #[test]
    fn a_sandbox_never_gets_the_nodes_token_and_always_the_host(
        head in head(),
        host in "[a-z0-9.:-]{1,20}",
    ) {
        let client = ClientConnection { address: "192.0.2.7:5".parse().unwrap(), tls: false };
        let mut prepared = head.clone();
        prepare_request(&mut prepared, Some(&host), Some(&client));
        prop_assert!(!prepared.contains_key(NODE_TOKEN_HEADER));
        prop_assert_eq!(&prepared["host"], host.as_str());
        prop_assert_eq!(prepared.get_all("host").iter().count(), 1);
        prop_assert!(prepared.get_all("cookie").iter().count() <= 1);
        prop_assert!(prepared["x-forwarded-for"].as_bytes().ends_with(b"192.0.2.7"));
        prop_assert_eq!(upgrade(&prepared), upgrade(&head));
    }

    #[test]
    fn an_answers_length_is_a_number_or_left_out(head in head()) {
        let mut prepared = head;
        prepare_answer(&mut prepared);
        if let Some(length) = prepared.get("content-length") {
            prop_assert!(length.to_str().unwrap().trim().parse::<u64>().is_ok());
        }
    }
}
