//! An error in E2B's shape: `code` is the status, `message` is for people, and some have an
//! `error_code` for programs.

use std::time::Duration;

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header::RETRY_AFTER};
use serde::Serialize;
use soulbox_control::{ErrorCode, Problem};

/// In whole seconds, and zero would mean a busy loop.
const LEAST_WAIT: Duration = Duration::from_secs(1);

/// How a code is told over HTTP: a row of a surface's map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ErrorShape {
    pub(crate) status: StatusCode,
    pub(crate) error_code: Option<&'static str>,
    /// Whether headers say if trying again helps. Without them clients go by the status.
    pub(crate) says_retry: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct ErrorBody {
    code: u16,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_code: Option<&'static str>,
}

impl ErrorShape {
    /// Without a code for programs: the status says it all.
    pub(crate) fn plain(status: StatusCode) -> Self {
        Self {
            status,
            error_code: None,
            says_retry: false,
        }
    }

    pub(crate) fn coded(status: StatusCode, code: ErrorCode) -> Self {
        Self {
            error_code: Some(code.as_str()),
            ..Self::plain(status)
        }
    }

    pub(crate) fn saying_retry(self) -> Self {
        Self {
            says_retry: true,
            ..self
        }
    }

    pub(crate) fn body(self, message: String) -> ErrorBody {
        ErrorBody {
            code: self.status.as_u16(),
            message,
            error_code: self.error_code,
        }
    }

    pub(crate) fn response(self, problem: &Problem, message: String) -> Response {
        let mut response = (self.status, Json(self.body(message))).into_response();
        let headers = response.headers_mut();
        if self.says_retry && problem.code.is_retryable() {
            headers.insert("should-retry", HeaderValue::from_static("true"));
            let wait = problem.retry_after.unwrap_or(LEAST_WAIT).max(LEAST_WAIT);
            headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_secs()));
        } else if self.says_retry {
            headers.insert("should-retry", HeaderValue::from_static("false"));
        }
        response
    }
}

/// As a line with the headers that matter, and the body.
#[cfg(test)]
pub(crate) async fn on_the_wire(response: Response) -> String {
    use http_body_util::BodyExt;

    let (parts, body) = response.into_parts();
    let mut line = parts.status.as_str().to_owned();
    for name in ["content-type", "should-retry", "retry-after"] {
        if let Some(value) = parts.headers.get(name) {
            line = format!("{line} {name}={}", value.to_str().unwrap());
        }
    }
    assert!(parts.headers.len() <= 3, "{:?}", parts.headers);
    let body = body.collect().await.unwrap().to_bytes();
    format!("{line}\n{}", str::from_utf8(&body).unwrap())
}
