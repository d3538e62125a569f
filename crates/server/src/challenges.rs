//! Port 80, for an ACME server that asks by HTTP-01. Everybody else is sent to HTTPS.

use axum::{
    Router,
    extract::Request,
    http::{StatusCode, header, uri::Authority},
    response::{IntoResponse, Response},
};
use soulbox_acme::Tokens;

pub(crate) fn router(tokens: Tokens, https_port: Option<u16>) -> Router {
    Router::new().fallback(async move |request: Request| answer(&tokens, https_port, &request))
}

fn answer(tokens: &Tokens, https_port: Option<u16>, request: &Request) -> Response {
    if let Some(answer) = tokens.answer(request.uri().path()) {
        return answer.into_response();
    }
    let named = request.headers().get(header::HOST);
    let named = named.and_then(|value| value.to_str().ok()?.parse::<Authority>().ok());
    let (Some(host), Some(port)) = (named, https_port) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let port = if port == 443 {
        String::new()
    } else {
        format!(":{port}")
    };
    let path = request
        .uri()
        .path_and_query()
        .map_or("/", |path| path.as_str());
    let location = format!("https://{}{port}{path}", host.host());
    (
        StatusCode::PERMANENT_REDIRECT,
        [(header::LOCATION, location)],
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn asked(path: &str, host: &str, port: u16) -> Response {
        let request = Request::builder().uri(path).header(header::HOST, host);
        answer(
            &Tokens::default(),
            Some(port),
            &request.body(Body::empty()).unwrap(),
        )
    }

    #[test]
    fn everybody_else_is_sent_to_https() {
        for (port, location) in [
            (443, "https://api.a.test/x?y"),
            (3443, "https://api.a.test:3443/x?y"),
        ] {
            let response = asked("/x?y", "api.a.test:80", port);
            assert_eq!(response.status(), StatusCode::PERMANENT_REDIRECT);
            assert_eq!(response.headers()[header::LOCATION], location);
        }
        let unknown = asked("/.well-known/acme-challenge/x", "", 443);
        assert_eq!(unknown.status(), StatusCode::NOT_FOUND);
    }
}
