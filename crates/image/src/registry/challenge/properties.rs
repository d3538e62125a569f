//! What holds of whatever a registry asks for.

use http::HeaderValue;
use proptest::{collection::vec, option, prelude::*};

use super::*;

fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_challenge_comes_back(
        realm in "[ -~]{0,30}",
        service in option::of("[ -~]{0,20}"),
        scope in option::of("[ -~]{0,20}"),
        extra in option::of("[ -~]{0,10}"),
        scheme in "(Bearer|bearer|BEARER)",
    ) {
        let mut text = scheme;
        for (name, value) in [
            (" realm", &Some(realm.clone())),
            (",error", &extra),
            (", Service", &service),
            (",scope", &scope),
        ] {
            if let Some(value) = value {
                text = format!("{text}{name}={}", quoted(value));
            }
        }
        let mut headers = HeaderMap::new();
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_str(&text).unwrap());
        prop_assert_eq!(challenge(&headers), Some(Challenge::Bearer { realm, service, scope }));
    }

    #[test]
    fn any_header_is_a_challenge_or_none(
        values in vec(
            prop_oneof![
                "(Bearer|Basic|x)?[ ,]{0,2}(realm|scope|=|\"|\\\\|,| |a){0,12}".prop_map(String::into_bytes),
                vec(any::<u8>(), 0..40),
            ],
            0..4,
        ),
    ) {
        let mut headers = HeaderMap::new();
        let mut length = 0;
        for value in values {
            length += value.len();
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                headers.append(header::WWW_AUTHENTICATE, value);
            }
        }
        if let Some(Challenge::Bearer { realm, service, scope }) = challenge(&headers) {
            let rest = [service, scope].iter().flatten().map(String::len).sum::<usize>();
            prop_assert!(realm.len() + rest <= length);
        }
    }
}
