//! Error responses of registries.

use http::{StatusCode, header};
use serde::Deserialize;

use super::http::RegistryResponse;
use crate::{Error, manifest::printable};

const MAX_BODY: u64 = 64 << 10;

#[derive(Deserialize)]
struct Body {
    #[serde(default)]
    errors: Vec<Problem>,
    /// Token servers.
    details: Option<String>,
    message: Option<String>,
}

#[derive(Deserialize)]
struct Problem {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

/// Turns an answer that is no success into an error with the registry's message.
pub(crate) async fn failure(mut answer: RegistryResponse, what: &str) -> Error {
    let status = answer.response.status();
    let retry_after = answer
        .response
        .headers()
        .get(header::RETRY_AFTER)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.trim().parse().ok());
    let body = answer.whole("the answer", MAX_BODY).await;
    let detail = detail(&body.unwrap_or_default(), status);
    let (host, what) = (answer.host, what.to_owned());
    match status {
        StatusCode::UNAUTHORIZED => Error::Unauthorized { host, what, detail },
        StatusCode::FORBIDDEN => Error::Denied { host, what, detail },
        StatusCode::NOT_FOUND => Error::NotFound { host, what, detail },
        StatusCode::TOO_MANY_REQUESTS => Error::RateLimited {
            host,
            detail,
            retry_after,
        },
        _ => Error::Status {
            host,
            status: status.as_u16(),
            what,
            detail,
        },
    }
}

fn detail(body: &[u8], status: StatusCode) -> String {
    let said = serde_json::from_slice::<Body>(body).ok().and_then(|body| {
        let first = body.errors.into_iter().next();
        let first = first.map(|problem| match problem.message.as_str() {
            "" => problem.code,
            message => message.to_owned(),
        });
        first.or(body.details).or(body.message)
    });
    let usual = || status.canonical_reason().unwrap_or("no reason given");
    match said {
        Some(said) if !said.is_empty() => printable(&said, 200),
        _ => usual().to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registrys_own_words_are_passed_on_in_one_line() {
        let body = br#"{"errors":[{"code":"DENIED","message":"pull\naccess denied"}]}"#;
        assert_eq!(detail(body, StatusCode::FORBIDDEN), "pull access denied");
        assert_eq!(detail(b"<html>", StatusCode::NOT_FOUND), "not found");
        assert_eq!(
            detail(b"{\"errors\":[]}", StatusCode::NOT_FOUND),
            "not found"
        );
        let details = br#"{"details":"incorrect username or password"}"#;
        let said = detail(details, StatusCode::UNAUTHORIZED);
        assert_eq!(said, "incorrect username or password");
    }
}
