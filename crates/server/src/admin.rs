//! The operator's listener: metrics and health. It shows no secrets, but is not for the public.

use axum::{Router, http::header, response::IntoResponse, routing::get};
use http::StatusCode;

use crate::metrics::Metrics;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(crate) fn router(metrics: Metrics) -> Router {
    let page = move || {
        let metrics = metrics.clone();
        async move {
            match metrics.page() {
                Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
                Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            }
        }
    };
    Router::new()
        .route("/metrics", get(page))
        .route("/health", get(async || "ok\n"))
}
