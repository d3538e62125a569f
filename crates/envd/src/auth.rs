//! Who may ask what: the access token for clients, the node token for control routes.

use base64::{Engine, engine::general_purpose::STANDARD};
use http::HeaderMap;
use soulbox_types::NODE_TOKEN_HEADER;

use crate::state::Envd;

const ACCESS_TOKEN_HEADER: &str = "x-access-token";

pub(crate) const UNAUTHORISED: &str =
    "unauthorized access, please provide a valid access token or method signing if supported";

pub(crate) enum Token {
    /// The header is there and right, or the sandbox needs none.
    Right,
    Wrong,
    Missing,
}

pub(crate) fn access_token(envd: &Envd, headers: &HeaderMap) -> Token {
    let settings = envd.settings.borrow();
    let Some(expected) = &settings.access_token else {
        return Token::Right;
    };
    match headers.get(ACCESS_TOKEN_HEADER).map(|v| v.to_str()) {
        None => Token::Missing,
        // An empty token is a mistake of whoever set it, and must not open the door.
        Some(Ok(given)) if !given.is_empty() && expected.matches(given) => Token::Right,
        Some(_) => Token::Wrong,
    }
}

/// Code inside the sandbox reaches this port too, so control routes need the node's own token.
pub(crate) fn is_node(envd: &Envd, headers: &HeaderMap) -> bool {
    headers
        .get(NODE_TOKEN_HEADER)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|given| !given.is_empty() && envd.node_token.matches(given))
}

/// The user name of a Basic `Authorization` header. It selects an account and proves nothing.
pub(crate) fn basic_user(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(http::header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    Some(
        text.split_once(':')
            .map_or(text.as_str(), |(user, _)| user)
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_is_what_stands_before_the_colon() {
        let user = |value: &str| {
            let headers = HeaderMap::from_iter([(
                http::header::AUTHORIZATION,
                http::HeaderValue::from_str(value).unwrap(),
            )]);
            basic_user(&headers)
        };
        assert_eq!(user("Basic dXNlcjo=").as_deref(), Some("user"));
        assert_eq!(user("basic cm9vdDphOmI=").as_deref(), Some("root"));
        assert_eq!(user("Basic cm9vdA==").as_deref(), Some("root"));
        for other in ["Bearer dXNlcjo=", "Basic", "Basic ***", "Basic /w=="] {
            assert_eq!(user(other), None, "{other}");
        }
    }
}
