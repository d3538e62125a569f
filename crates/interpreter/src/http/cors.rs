//! Cross-origin requests: every page may call, as in the reference.

use http::{HeaderMap, HeaderValue, Method, Request, Response, header};

use super::{body::Body, reply};

const METHODS: &str = "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT";

pub(super) fn is_preflight<B>(request: &Request<B>) -> bool {
    request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ORIGIN)
        && request
            .headers()
            .contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

pub(super) fn preflight<B>(request: &Request<B>) -> Response<Body> {
    let mut response = reply::text(http::StatusCode::OK, "OK".to_owned());
    let headers = response.headers_mut();
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_METHODS,
        HeaderValue::from_static(METHODS),
    );
    headers.insert(
        header::ACCESS_CONTROL_MAX_AGE,
        HeaderValue::from_static("600"),
    );
    if let Some(wanted) = request
        .headers()
        .get(header::ACCESS_CONTROL_REQUEST_HEADERS)
    {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
    }
    response
}

pub(super) fn expose(headers: &mut HeaderMap) {
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_ORIGIN,
        HeaderValue::from_static("*"),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preflight_allows_every_method_and_the_headers_that_are_asked_for() {
        let request = Request::options("/execute")
            .header("Origin", "https://example.org")
            .header("Access-Control-Request-Method", "POST")
            .header("Access-Control-Request-Headers", "x-access-token")
            .body(())
            .unwrap();
        assert!(is_preflight(&request));
        let response = preflight(&request);
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["access-control-max-age"], "600");
        assert_eq!(
            response.headers()["access-control-allow-headers"],
            "x-access-token"
        );
    }

    #[test]
    fn other_options_requests_are_no_preflights() {
        let request = Request::options("/execute").body(()).unwrap();
        assert!(!is_preflight(&request));
    }
}
