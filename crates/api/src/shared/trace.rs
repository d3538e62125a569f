//! One span per request, with whose it is and which sandbox it is about. Never a key, never the
//! query (it holds metadata).

use std::time::Instant;

use axum::{extract::Request, middleware::Next, response::Response};
use tracing::{Instrument, field::Empty};

pub(crate) async fn in_span(request: Request, next: Next) -> Response {
    let span = tracing::info_span!(
        "api",
        method = %request.method(),
        path = request.uri().path(),
        tenant_id = Empty,
        sandbox_id = Empty,
    );
    let started = Instant::now();
    async move {
        let response = next.run(request).await;
        let status = response.status().as_u16();
        let ms = started.elapsed().as_millis();
        tracing::debug!(status, ms, "answered");
        response
    }
    .instrument(span)
    .await
}
