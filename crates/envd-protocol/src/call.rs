//! The headers of a call to a procedure, and the errors in its answer.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{header, request};
use serde::Deserialize;

/// Our own addition: a subscriber with this header first gets the output that envd still holds.
pub const REPLAY_HEADER: &str = "soulbox-replay";
/// How often an idle stream says that it is alive, in seconds.
pub const KEEPALIVE_HEADER: &str = "keepalive-ping-interval";
/// When envd is to end the process or the call.
pub const TIMEOUT_HEADER: &str = "connect-timeout-ms";

/// How often our clients ask for a sign of life.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// How a call's messages travel; our clients write JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Unary,
    Stream,
}

/// A call as an account inside; empty: the sandbox's default. It travels as Basic authentication.
pub fn call_headers(request: request::Builder, encoding: Encoding, user: &str) -> request::Builder {
    let content_type = match encoding {
        Encoding::Unary => "application/json",
        Encoding::Stream => "application/connect+json",
    };
    let request = request
        .header(header::CONTENT_TYPE, content_type)
        .header("connect-protocol-version", "1");
    if user.is_empty() {
        return request;
    }
    let credentials = STANDARD.encode(format!("{user}:"));
    request.header(header::AUTHORIZATION, format!("Basic {credentials}"))
}

/// A stream that envd keeps alive, and ends with its process at the `limit`.
pub fn stream_headers(request: request::Builder, limit: Option<Duration>) -> request::Builder {
    let request = request.header(KEEPALIVE_HEADER, KEEPALIVE.as_secs());
    let Some(limit) = limit else {
        return request;
    };
    // Zero would mean none.
    let millis = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX).max(1);
    request.header(TIMEOUT_HEADER, millis)
}

/// The last message of a stream.
#[derive(Debug, Deserialize)]
pub struct EndOfStream {
    #[serde(default)]
    pub error: Option<ErrorBody>,
}

/// Why a procedure failed.
#[derive(Debug, Deserialize)]
pub struct ErrorBody {
    pub code: String,
    #[serde(default)]
    pub message: String,
}
