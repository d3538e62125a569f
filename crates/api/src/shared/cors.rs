//! Browsers may call from anywhere: what protects is the key, not the origin.

use axum::{extract::Request, middleware::Next, response::Response};
use http::{HeaderValue, Method, StatusCode, header};

const ALLOWED_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
const ALLOWED_HEADERS: &str = "Origin, Content-Length, Content-Type, User-Agent, Authorization, \
    X-API-Key, X-Team-ID, X-Access-Token, Idempotency-Key, E2b-Sandbox-Id, E2b-Sandbox-Port, \
    browser, lang, lang_version, machine, os, package_version, processor, publisher, release, \
    sdk_runtime, system";
const EXPOSED_HEADERS: &str = "X-Next-Token, X-Total-Running, RateLimit-Limit, \
    RateLimit-Remaining, RateLimit-Reset, Retry-After, Should-Retry";
const MAX_AGE_SECONDS: &str = "7200";

pub(crate) async fn allow_every_origin(request: Request, next: Next) -> Response {
    let preflight = request.method() == Method::OPTIONS;
    let mut response = if preflight {
        Response::default()
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    let mut set = |name, value| headers.insert(name, HeaderValue::from_static(value));
    set(header::ACCESS_CONTROL_ALLOW_ORIGIN, "*");
    set(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED_HEADERS);
    if preflight {
        set(header::ACCESS_CONTROL_ALLOW_METHODS, ALLOWED_METHODS);
        set(header::ACCESS_CONTROL_ALLOW_HEADERS, ALLOWED_HEADERS);
        set(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE_SECONDS);
        *response.status_mut() = StatusCode::NO_CONTENT;
    }
    response
}
