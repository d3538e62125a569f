//! Cross-origin requests: the SDK also runs in browsers. Any origin may ask; the token decides.

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};

use super::body::Body;

const METHODS: &str = "HEAD, GET, POST, PUT, PATCH, DELETE";
const EXPOSED: &str = "Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin, \
    Connect-Content-Encoding, Content-Encoding, Location, Cache-Control, X-Content-Type-Options";
const MAX_AGE: &str = "7200";

pub(crate) fn is_preflight<T>(request: &Request<T>) -> bool {
    request.method() == Method::OPTIONS
        && request
            .headers()
            .contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

pub(crate) fn preflight<T>(request: &Request<T>) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_METHODS,
        HeaderValue::from_static(METHODS),
    );
    headers.insert(
        header::ACCESS_CONTROL_MAX_AGE,
        HeaderValue::from_static(MAX_AGE),
    );
    if let Some(asked) = request
        .headers()
        .get(header::ACCESS_CONTROL_REQUEST_HEADERS)
    {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, asked.clone());
    }
    response
}

pub(crate) fn expose(origin: Option<&HeaderValue>, headers: &mut HeaderMap) {
    if origin.is_none() {
        return;
    }
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_ORIGIN,
        HeaderValue::from_static("*"),
    );
    headers.insert(
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static(EXPOSED),
    );
}
