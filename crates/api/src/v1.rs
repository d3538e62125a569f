//! SoulBox's own interface, below `/v1`.

mod broken;
mod disk;
mod error;
mod execute;
mod ports;

use axum::{
    Router,
    routing::{delete, get, post},
};

use crate::{
    router::App,
    shared::error::{speaking, wrong_method},
};

pub(crate) fn routes() -> Router<App> {
    let routes = Router::new()
        .route("/v1/broken", get(broken::list))
        .route("/v1/broken/{id}", delete(broken::discard))
        .route("/v1/broken/{id}/recover", post(broken::recover))
        .route("/v1/broken/{id}/disk", get(broken::disk))
        .route("/v1/df", get(disk::get))
        .route("/v1/prune", post(disk::prune))
        .route("/v1/sandboxes/{id}/execute", post(execute::execute))
        .route("/v1/sandboxes/{id}/languages", get(execute::languages))
        .route("/v1/sandboxes/{id}/ports/{port}", get(ports::open))
        .method_not_allowed_fallback(wrong_method);
    speaking(routes, error::respond)
}
