//! What holds of whatever a client writes as a signed URL.

use proptest::{option, prelude::*, sample::Index};

use super::*;

/// As E2B's clients sign.
fn signature(path: &str, operation: &str, user: &str, token: &str, end: Option<i64>) -> String {
    let end = end.map_or_else(String::new, |end| format!(":{end}"));
    let text = format!("{path}:{operation}:{user}:{token}{end}");
    format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text)))
}

fn url(path: &str, user: &str, end: Option<i64>, signature: &str) -> Uri {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query
        .append_pair("path", path)
        .append_pair("username", user);
    if let Some(end) = end {
        query.append_pair("signature_expiration", &end.to_string());
    }
    query.append_pair("signature", signature);
    format!("/files?{}", query.finish()).parse().unwrap()
}

fn made_with(method: &Method, uri: &Uri, token: &str) -> bool {
    let file = SignedFile::of(method, uri).unwrap();
    file.check()
        .is_some_and(|check| check.made_with(&Secret::new(token)))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_signature_matches_its_own_request_and_token_and_nothing_else(
        path in ".{0,20}",
        user in "[a-z:]{0,8}",
        token in "[a-zA-Z0-9]{1,20}",
        end in option::of(any::<i64>()),
        other in ".{1,3}",
        at in any::<Index>(),
        character in any::<char>(),
    ) {
        let good = signature(&path, "read", &user, &token, end);
        let uri = url(&path, &user, end, &good);
        prop_assert!(made_with(&Method::GET, &uri, &token));
        prop_assert!(!made_with(&Method::POST, &uri, &token));
        prop_assert!(!made_with(&Method::GET, &uri, &(token.clone() + &other)));
        let elsewhere = url(&(path.clone() + &other), &user, end, &good);
        prop_assert!(!made_with(&Method::GET, &elsewhere, &token));
        let later = url(&path, &user, Some(end.map_or(0, |end| end ^ 1)), &good);
        prop_assert!(!made_with(&Method::GET, &later, &token));

        let mut changed: Vec<char> = good.chars().collect();
        let at = at.index(changed.len());
        // A plus sign that was not encoded arrives as a space, and is taken for one.
        prop_assume!(changed[at] != character && (changed[at], character) != ('+', ' '));
        changed[at] = character;
        let changed: String = changed.into_iter().collect();
        prop_assert!(!made_with(&Method::GET, &url(&path, &user, end, &changed), &token));
    }

    #[test]
    fn any_query_is_a_bounded_request_or_refused(
        query in "(path=|username=|signature=v1_|signature=|signature_expiration=|&|%[0-9a-f]{0,2}|[a-z0-9+/]{1,40}){0,12}",
    ) {
        let uri: Uri = format!("/files?{query}").parse().unwrap();
        match SignedFile::of(&Method::GET, &uri) {
            Ok(file) => {
                prop_assert!(file.path.len() <= MAX_PATH && file.username.len() <= MAX_USERNAME);
                prop_assert!(file.expiration.is_none_or(|end| end.len() <= MAX_EXPIRATION));
            }
            Err(NotSigned::Unsigned | NotSigned::TooLong(_)) => {}
        }
    }
}
