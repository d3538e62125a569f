//! What holds of whatever clients write into the query and the headers of `/files`.

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use http::{HeaderName, HeaderValue, StatusCode, header};
use percent_encoding::percent_decode_str;
use proptest::{collection::vec, option, prelude::*, sample::Index};
use sha2::{Digest, Sha256};
use soulbox_types::Secret;

use super::{
    disposition::content_disposition,
    encoding::negotiate,
    metadata::from_headers,
    range::{Part, part},
    signature::check,
    *,
};

/// As E2B's clients sign.
fn signed(query: &Query, operation: &str, token: &str) -> String {
    let user = query.username.as_deref().unwrap_or_default();
    let mut text = format!("{}:{operation}:{user}:{token}", query.path);
    if let Some(expiration) = &query.expiration {
        text = format!("{text}:{expiration}");
    }
    format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text)))
}

fn query() -> impl Strategy<Value = Query> {
    let expiration = option::of(prop_oneof![0..2000_i64, any::<i64>()]);
    (".{0,20}", option::of("[a-z:]{0,8}"), expiration).prop_map(|(path, username, expiration)| {
        Query {
            path,
            username,
            signature: None,
            expiration: expiration.map(|at| at.to_string()),
        }
    })
}

/// A header's value from any text.
fn value(text: &str) -> HeaderValue {
    HeaderValue::from_bytes(text.as_bytes()).unwrap_or_else(|_| HeaderValue::from_static(""))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_signature_is_good_until_it_expires_and_for_nothing_else(
        mut query in query(),
        token in "[a-zA-Z0-9]{1,20}",
        now in 0..2000_i64,
        other in ".{1,3}",
        at in any::<Index>(),
        byte in any::<char>(),
    ) {
        let good = signed(&query, "read", &token);
        query.signature = Some(good.clone());
        let secret = Secret::new(token.as_str());
        let expired = query.expiration.as_ref().is_some_and(|at| at.parse::<i64>().unwrap() < now);
        let expected = if expired { Err("signature is already expired") } else { Ok(()) };
        prop_assert_eq!(check(&query, "read", &secret, now), expected);
        let invalid = Err("invalid signature");
        prop_assert_eq!(check(&query, "write", &secret, now), invalid);
        let stranger = Secret::new(format!("{token}{other}"));
        prop_assert_eq!(check(&query, "read", &stranger, now), invalid);

        let mut changed: Vec<char> = good.chars().collect();
        let at = at.index(changed.len());
        prop_assume!(changed[at] != byte);
        changed[at] = byte;
        query.signature = Some(changed.into_iter().collect());
        prop_assert_eq!(check(&query, "read", &secret, now), invalid);
        query.signature = Some(good);

        let mut elsewhere = Query { path: query.path.clone() + &other, ..query };
        prop_assert_eq!(check(&elsewhere, "read", &secret, now), invalid);
        elsewhere.path.truncate(elsewhere.path.len() - other.len());
        elsewhere.expiration = match elsewhere.expiration {
            Some(_) => None,
            None => Some(i64::MAX.to_string()),
        };
        prop_assert_eq!(check(&elsewhere, "read", &secret, now), invalid);
    }

    #[test]
    fn a_query_is_read_as_it_was_written(query in query(), signature in option::of(".{0,10}")) {
        let mut written = form_urlencoded::Serializer::new(String::new());
        written.append_pair("path", &query.path);
        for (name, value) in [
            ("username", &query.username),
            ("signature", &signature),
            ("signature_expiration", &query.expiration),
        ] {
            if let Some(value) = value {
                written.append_pair(name, value);
            }
        }
        let read = Query::parse(Some(&written.finish()));
        prop_assert_eq!(read, Query { signature, ..query });
    }

    #[test]
    fn a_part_of_a_file_is_never_empty_and_never_beyond_its_end(
        range in prop_oneof![
            "bytes=[0-9]{0,20}-[0-9]{0,20}",
            "bytes *= *[+-]?[0-9]{0,3}-[0-9]{0,3},?",
            ".{0,20}",
        ],
        date in option::of("Sun, [0-9]{1,2} Nov [0-9]{1,20} [0-9]{1,20}:00:00 GMT"),
        size in prop_oneof![0..300_u64, any::<u64>()],
        modified in any::<i64>(),
    ) {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, value(&range));
        if let Some(date) = date {
            headers.insert(header::IF_MODIFIED_SINCE, value(&date));
            headers.insert(header::IF_RANGE, value(&date));
        }
        if let Part::Slice { first, length } = part(&headers, size, modified) {
            prop_assert!(length > 0);
            prop_assert!(first.checked_add(length).is_some_and(|end| end <= size));
        }
    }

    #[test]
    fn a_range_inside_the_file_is_what_is_sent(
        (size, first, last) in (1..1000_u64).prop_flat_map(|size| {
            (Just(size), 0..size).prop_flat_map(|(size, first)| {
                (Just(size), Just(first), first..size)
            })
        }),
    ) {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, value(&format!("bytes={first}-{last}")));
        let expected = Part::Slice { first, length: last - first + 1 };
        prop_assert_eq!(part(&headers, size, 0), expected);
    }

    #[test]
    fn any_wish_for_encodings_has_an_answer(
        accepted in vec("(gzip|identity|br|\\*|x)?( *; *q=[0-9.]{0,4})?|.{0,10}", 0..5),
    ) {
        let mut headers = HeaderMap::new();
        for item in accepted {
            headers.append(header::ACCEPT_ENCODING, value(&item));
        }
        let refused = negotiate(&headers).err().map(|failure| failure.status);
        prop_assert!(matches!(refused, None | Some(StatusCode::NOT_ACCEPTABLE)));
    }

    #[test]
    fn any_name_of_a_file_fits_into_a_header_and_can_be_read_there(
        name in prop_oneof!["[a-z.\"\\\\ ]{0,12}", ".{0,12}", "\\PC{0,3}\r?\n?\\PC{0,3}"],
    ) {
        let text = content_disposition(&name);
        prop_assert!(HeaderValue::from_str(&text).is_ok());
        let written = text.strip_prefix("inline; filename").unwrap();
        let read = if let Some(encoded) = written.strip_prefix("*=utf-8''") {
            percent_decode_str(encoded).decode_utf8().unwrap().into_owned()
        } else if let Some(quoted) = written.strip_prefix("=\"") {
            quoted.strip_suffix('"').unwrap().replace("\\\"", "\"").replace("\\\\", "\\")
        } else {
            written.strip_prefix('=').unwrap().to_owned()
        };
        // Taking escapes away by `replace` confuses a backslash before a quote.
        prop_assume!(!name.contains("\\\""));
        prop_assert_eq!(read, name);
    }

    #[test]
    fn metadata_is_short_and_printable_or_refused(
        pairs in vec(("[a-z0-9!-]{0,300}", ".{0,2000}"), 0..4),
    ) {
        let mut headers = HeaderMap::new();
        for (key, text) in pairs {
            let name = HeaderName::from_bytes(format!("x-metadata-{key}").as_bytes()).unwrap();
            headers.append(name, value(&text));
        }
        match from_headers(&headers) {
            Ok(metadata) => {
                let printable = |text: &str| text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
                let mut total = 0;
                for (key, value) in metadata {
                    prop_assert!((1..=246).contains(&key.len()));
                    prop_assert!(printable(&key) && printable(&value));
                    total += key.len() + value.len();
                }
                prop_assert!(total <= 4096);
            }
            Err(failure) => prop_assert_eq!(failure.status, StatusCode::BAD_REQUEST),
        }
    }
}
