//! The operator's listener: metrics and health. [`Health`] says what `/livez` and `/readyz` mean. It shows no secrets, but is not for the public.

use std::net::{IpAddr, SocketAddr};

use axum::{
    Router,
    extract::Request,
    http::{header, uri::Authority},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use http::{HeaderMap, StatusCode};

use crate::{
    health::Health,
    metrics::{Metrics, TEXT_FORMAT, from_open_metrics},
};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const STRANGE_NAME: &str = "this listener is on the loopback: ask it by address or as localhost\n";

pub(crate) fn router(metrics: Metrics, health: Health, listening: Option<SocketAddr>) -> Router {
    let page = move |headers: HeaderMap| {
        let metrics = metrics.clone();
        async move {
            let open_metrics = asks_for_open_metrics(&headers);
            match metrics.page() {
                Ok(text) if !open_metrics => {
                    let text = from_open_metrics(&text);
                    ([(header::CONTENT_TYPE, TEXT_FORMAT)], text).into_response()
                }
                Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
                Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            }
        }
    };
    let router = Router::new()
        .route("/metrics", get(page))
        .route("/health", get(async || "ok\n"))
        .route("/livez", get(async || Health::live()))
        .route("/readyz", get(async move || health.ready().await));
    if listening.is_some_and(|address| address.ip().is_loopback()) {
        router.layer(middleware::from_fn(refuse_strange_names))
    } else {
        router
    }
}

/// As Prometheus does.
fn asks_for_open_metrics(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).into_iter();
    accepted
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.contains("application/openmetrics-text"))
}

/// Against DNS rebinding: a web page can let its own name resolve to the loopback and read what is
/// there, with the browser of a user of this machine. It cannot choose the name that the browser sends.
async fn refuse_strange_names(request: Request, next: Next) -> Response {
    if is_of_this_machine(&request) {
        next.run(request).await
    } else {
        (StatusCode::MISDIRECTED_REQUEST, STRANGE_NAME).into_response()
    }
}

fn is_of_this_machine(request: &Request) -> bool {
    let named = request.headers().get(header::HOST);
    let named = match named {
        Some(value) => value.to_str().ok().and_then(|text| text.parse().ok()),
        None => request.uri().authority().cloned(),
    };
    named.is_some_and(|authority: Authority| {
        let host = authority.host();
        let address = host.trim_start_matches('[').trim_end_matches(']');
        host.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
    })
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn asked_as(host: &str) -> bool {
        let request = Request::builder().header(header::HOST, host);
        is_of_this_machine(&request.body(Body::empty()).unwrap())
    }

    #[test]
    fn a_name_that_somebody_else_gave_this_machine_is_told_from_its_own() {
        for own in [
            "127.0.0.1:3001",
            "localhost:3001",
            "LOCALHOST",
            "[::1]:3001",
        ] {
            assert!(asked_as(own), "{own}");
        }
        for strange in ["evil.example:3001", "127.0.0.1.evil.example", "", "a b"] {
            assert!(!asked_as(strange), "{strange}");
        }
        let over_http2 = Request::builder().uri("http://evil.example:3001/metrics");
        assert!(!is_of_this_machine(
            &over_http2.body(Body::empty()).unwrap()
        ));
    }
}
