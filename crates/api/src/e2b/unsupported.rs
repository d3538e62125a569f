//! What is not built yet says so: never a success that did nothing.

use axum::routing::{MethodRouter, any};
use soulbox_control::ErrorCode;

use crate::{
    router::App,
    shared::{auth::Caller, error::ApiError},
};

/// For whoever has a key.
pub(crate) fn anywhere(what: &'static str, instead: &'static str) -> MethodRouter<App> {
    any(async move |_: Caller| ApiError::not_supported(what, instead))
}

/// The build system before E2B's second.
pub(crate) async fn gone(_: Caller) -> ApiError {
    let message = "this version of the template builds is gone";
    ApiError::new(ErrorCode::ClientOutdated, message).hint("update your E2B client")
}
