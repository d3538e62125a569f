//! Answers: JSON, plain text, and the errors in the two shapes that clients know.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use serde::Serialize;
use serde_json::{Value, json};

use super::body::Body;
use crate::contexts;

/// An answer that is not a success.
#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    body: Shape,
}

#[derive(Debug)]
enum Shape {
    Text(String),
    Json(Value),
}

impl Failure {
    pub(crate) fn text(status: StatusCode, text: impl Into<String>) -> Self {
        Self {
            status,
            body: Shape::Text(text.into()),
        }
    }

    pub(crate) fn json(status: StatusCode, body: Value) -> Self {
        Self {
            status,
            body: Shape::Json(body),
        }
    }

    pub(crate) fn no_route() -> Self {
        Self::json(StatusCode::NOT_FOUND, json!({"detail": "Not Found"}))
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::json(
            StatusCode::METHOD_NOT_ALLOWED,
            json!({"detail": "Method Not Allowed"}),
        )
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        Self::text(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("The body is larger than {limit} bytes, or ended early"),
        )
    }

    pub(crate) fn too_slow() -> Self {
        Self::text(
            StatusCode::REQUEST_TIMEOUT,
            "The body did not arrive in time",
        )
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        let mut response = match self.body {
            Shape::Text(text) => return self::text(self.status, text),
            Shape::Json(body) => json(&body),
        };
        *response.status_mut() = self.status;
        response
    }
}

impl From<contexts::Error> for Failure {
    fn from(error: contexts::Error) -> Self {
        let status = match error {
            contexts::Error::NotFound(_) => StatusCode::NOT_FOUND,
            contexts::Error::Create(_)
            | contexts::Error::TooMany
            | contexts::Error::WorkingDirectory => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::text(status, error.to_string())
    }
}

pub(crate) fn json<T: Serialize + ?Sized>(body: &T) -> Response<Body> {
    match serde_json::to_vec(body) {
        Ok(body) => whole(StatusCode::OK, "application/json", body.into()),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

pub(crate) fn text(status: StatusCode, text: String) -> Response<Body> {
    whole(status, "text/plain; charset=utf-8", text.into())
}

fn whole(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::Whole(Some(body)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
