//! What goes wrong on any surface, in no surface's words. Each of them has one `error` module that
//! words it and maps it to HTTP.

use std::borrow::Cow;

use axum::{
    Router, middleware,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use soulbox_control::{Error as ControlError, ErrorCode, Problem, volume::Error as VolumeError};
use soulbox_types::Chain;

use crate::router::App;

pub(crate) type Result<T, E = ApiError> = std::result::Result<T, E>;

#[derive(Debug, Clone)]
pub(crate) struct ApiError(Problem);

impl ApiError {
    pub(crate) fn new(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Problem::new(code, message))
    }

    pub(crate) fn bad_request(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorCode::InvalidRequest, message)
    }

    /// `what` is a noun phrase; `instead` is what the caller can do.
    pub(crate) fn not_supported(what: &str, instead: &'static str) -> Self {
        let message = format!("{what} is not supported yet by SoulBox");
        Self::new(ErrorCode::NotSupportedYet, message).hint(instead)
    }

    /// What the caller can do.
    pub(crate) fn hint(self, hint: impl Into<Cow<'static, str>>) -> Self {
        Self(self.0.hint(hint))
    }

    pub(crate) fn problem(&self) -> &Problem {
        &self.0
    }
}

impl From<ControlError> for ApiError {
    fn from(error: ControlError) -> Self {
        let problem = error.problem();
        if is_fault(problem.code) {
            tracing::error!(code = %problem.code, error = %Chain(&error), "request failed");
        }
        Self(problem)
    }
}

impl From<VolumeError> for ApiError {
    fn from(error: VolumeError) -> Self {
        ControlError::from(error).into()
    }
}

/// The operator wants to know of these.
fn is_fault(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::InternalServerError | ErrorCode::Damaged | ErrorCode::SandboxCreateFailed
    )
}

/// Not an answer yet: it carries the error to the layer that [`speaking`] puts around a surface. So
/// what is shared need not know for whom it works.
impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = StatusCode::INTERNAL_SERVER_ERROR.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// The routes of a surface, with their errors told by `respond`.
pub(crate) fn speaking(routes: Router<App>, respond: fn(&Problem) -> Response) -> Router<App> {
    let shape = move |response: Response| async move {
        match response.extensions().get::<ApiError>() {
            Some(error) => respond(error.problem()),
            None => response,
        }
    };
    routes.layer(middleware::map_response(shape))
}

/// For paths that exist.
pub(crate) async fn wrong_method() -> ApiError {
    let message = "this route does not have this method";
    ApiError::new(ErrorCode::MethodNotFound, message)
}
