//! Answers of the plain HTTP routes.

use std::{fmt, io};

use http::{HeaderValue, Response, StatusCode, header};

use super::body::Body;
use crate::{paths, users};

/// A failed request: the status and the text of `{code, message}`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
        }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn unauthorised(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, message)
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method not allowed on this route",
        )
    }

    pub(crate) fn no_route() -> Self {
        Self::new(StatusCode::NOT_FOUND, "no such route")
    }

    /// A failed file operation: a full disk has its own status, which SDKs understand.
    pub(crate) fn io(what: impl fmt::Display, error: &io::Error) -> Self {
        let status = if paths::is_out_of_space(error) {
            StatusCode::INSUFFICIENT_STORAGE
        } else {
            StatusCode::INTERNAL_SERVER_ERROR
        };
        Self::new(status, format!("{what}: {}", paths::told(error)))
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        let body = serde_json::json!({ "code": self.status.as_u16(), "message": self.message });
        json(self.status, body.to_string())
    }
}

impl From<users::Error> for Failure {
    fn from(error: users::Error) -> Self {
        Self::unauthorised(format!("error looking up user: {error}"))
    }
}

impl From<paths::Error> for Failure {
    fn from(error: paths::Error) -> Self {
        Self::bad_request(error.to_string())
    }
}

pub(crate) fn json(status: StatusCode, body: impl Into<bytes::Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::full(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
