//! Signed URLs: a hash over the request and the access token stands in for the token.

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use sha2::{Digest, Sha256};
use soulbox_types::Secret;

use super::Query;

/// The operation is `read` or `write`. The path is what the client wrote, not what it resolves to.
pub(super) fn check(
    query: &Query,
    operation: &str,
    token: &Secret,
    now: i64,
) -> Result<(), &'static str> {
    let given = query
        .signature
        .as_deref()
        .ok_or("missing signature query parameter")?;
    let user = query.username.as_deref().unwrap_or_default();
    let expected = sign(
        &query.path,
        operation,
        user,
        token,
        query.expiration.as_deref(),
    );
    // With an empty token, anybody could sign.
    if token.expose().is_empty() || !Secret::new(expected).matches(given) {
        return Err("invalid signature");
    }
    match &query.expiration {
        None => Ok(()),
        Some(text) => match text.parse::<i64>() {
            Ok(expiration) if expiration >= now => Ok(()),
            _ => Err("signature is already expired"),
        },
    }
}

fn sign(
    path: &str,
    operation: &str,
    user: &str,
    token: &Secret,
    expiration: Option<&str>,
) -> String {
    let mut text = format!("{path}:{operation}:{user}:{}", token.expose());
    if let Some(expiration) = expiration {
        text.push(':');
        text.push_str(expiration);
    }
    format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(signature: Option<String>, expiration: Option<&str>) -> Query {
        Query {
            path: "hello.txt".into(),
            username: Some("user".into()),
            signature,
            expiration: expiration.map(Into::into),
        }
    }

    #[test]
    fn the_published_vector_is_accepted() {
        let token = Secret::new("0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0");
        let signature = "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E".to_owned();
        assert_eq!(
            check(&query(Some(signature.clone()), None), "read", &token, 0),
            Ok(())
        );
        assert_eq!(
            check(&query(Some(signature), None), "write", &token, 0),
            Err("invalid signature")
        );
        assert_eq!(
            check(&query(None, None), "read", &token, 0),
            Err("missing signature query parameter")
        );
    }

    #[test]
    fn nothing_can_be_signed_with_an_empty_token() {
        let token = Secret::new("");
        let signature = sign("hello.txt", "read", "user", &token, None);
        assert_eq!(
            check(&query(Some(signature), None), "read", &token, 0),
            Err("invalid signature")
        );
    }

    #[test]
    fn an_expiration_is_part_of_the_signature_and_is_enforced() {
        let token = Secret::new("t");
        let signature = sign("hello.txt", "read", "user", &token, Some("100"));
        let check = |expiration, now| {
            check(
                &query(Some(signature.clone()), expiration),
                "read",
                &token,
                now,
            )
        };
        assert_eq!(check(Some("100"), 100), Ok(()));
        assert_eq!(check(Some("100"), 101), Err("signature is already expired"));
        assert_eq!(check(Some("999"), 101), Err("invalid signature"));
        assert_eq!(check(None, 50), Err("invalid signature"));
    }
}
