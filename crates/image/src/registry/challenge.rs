//! `WWW-Authenticate`: what a registry wants to see before it answers.

use http::{HeaderMap, header};

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Challenge {
    Basic,
    Bearer {
        realm: String,
        service: Option<String>,
        scope: Option<String>,
    },
}

/// The first that we can meet; a token rather than a password.
pub(crate) fn challenge(headers: &HeaderMap) -> Option<Challenge> {
    let all = headers.get_all(header::WWW_AUTHENTICATE).iter();
    let all: Vec<_> = all
        .filter_map(|value| value.to_str().ok())
        .filter_map(parse)
        .collect();
    let bearer = |challenge: &Challenge| matches!(challenge, Challenge::Bearer { .. });
    let mut all = all.into_iter();
    let first = all.next()?;
    if bearer(&first) {
        Some(first)
    } else {
        Some(all.find(bearer).unwrap_or(first))
    }
}

fn parse(text: &str) -> Option<Challenge> {
    let (scheme, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    if scheme.eq_ignore_ascii_case("basic") {
        return Some(Challenge::Basic);
    }
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let (mut realm, mut service, mut scope) = (None, None, None);
    let mut rest = rest;
    while let Some((key, value, after)) = parameter(rest) {
        match key.to_ascii_lowercase().as_str() {
            "realm" => realm = Some(value),
            "service" => service = Some(value),
            "scope" => scope = Some(value),
            _ => {}
        }
        rest = after;
    }
    Some(Challenge::Bearer {
        realm: realm?,
        service,
        scope,
    })
}

/// `key=value` or `key="value"`, and what follows.
fn parameter(text: &str) -> Option<(&str, String, &str)> {
    let text = text.trim_start_matches([',', ' ']);
    let (key, rest) = text.split_once('=')?;
    let Some(quoted) = rest.strip_prefix('"') else {
        let (value, after) = rest.split_once(',').unwrap_or((rest, ""));
        return Some((key.trim(), value.trim().to_owned(), after));
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => value.push(characters.next()?.1),
            '"' => return Some((key.trim(), value, quoted.get(at + 1..)?)),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_challenges_are_read_with_all_their_parts() {
        let text = r#"Bearer realm="https://auth.example/token",service="registry.example",scope="repository:a/b:pull,push",error="x""#;
        let expected = Challenge::Bearer {
            realm: "https://auth.example/token".into(),
            service: Some("registry.example".into()),
            scope: Some("repository:a/b:pull,push".into()),
        };
        assert_eq!(parse(text), Some(expected));
    }

    #[test]
    fn broken_challenges_are_no_challenges() {
        for text in [
            "",
            "Negotiate",
            "Bearer",
            "Bearer realm=\"x",
            "Bearer service=\"a\"",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse("basic realm=\"x\""), Some(Challenge::Basic));
    }

    #[test]
    fn a_token_is_preferred_to_a_password() {
        let mut headers = HeaderMap::new();
        headers.append("www-authenticate", "Basic realm=x".parse().unwrap());
        assert_eq!(challenge(&headers), Some(Challenge::Basic));
        headers.append("www-authenticate", "Bearer realm=y".parse().unwrap());
        assert!(matches!(
            challenge(&headers),
            Some(Challenge::Bearer { .. })
        ));
    }
}
