//! The surfaces, one beside the other.

use std::sync::Arc;

use axum::{Router, middleware};
use soulbox_control::Control;

use crate::{
    e2b,
    shared::{cors, trace},
    v1,
};

#[derive(Debug, Clone)]
pub struct ApiConfig {
    /// What answers carry as `domain` when the request's Host says nothing better; may have a
    /// port, e.g. `sbx.localhost:3443`.
    pub domain: String,
}

#[derive(Debug, Clone)]
pub(crate) struct App {
    pub(crate) control: Arc<Control>,
    pub(crate) config: Arc<ApiConfig>,
}

pub fn router(control: Arc<Control>, config: ApiConfig) -> Router {
    let app = App {
        control,
        config: Arc::new(config),
    };
    e2b::routes()
        .merge(v1::routes())
        .layer(middleware::from_fn(cors::allow_every_origin))
        .layer(middleware::from_fn(trace::in_span))
        .with_state(app)
}
