//! One HTTP exchange over one connection into the sandbox.

use std::{io, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use soulbox_outgoing::{Flood, InterimLimit, collect_limited, is_flood};
use soulbox_runtime::DynStream;
use tokio::{task::JoinHandle, time::timeout};

use crate::{Error, Result};

pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// How long a short question may take.
pub(crate) const CALL_LIMIT: Duration = Duration::from_secs(30);
/// How long silence is believed; envd says every 15 seconds that a stream lives.
pub(crate) const IDLE_LIMIT: Duration = Duration::from_secs(75);
/// Whole answers, other than streams.
const MAX_ANSWER: usize = 256 << 10;
const MAX_HEADERS: usize = 64;
const MAX_HEAD: usize = 64 << 10;

/// An answer and the connection that it comes over, which ends with it.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) response: Response<Incoming>,
    _connection: Connection,
}

#[derive(Debug)]
struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends the request and waits for the head of the answer. The caller bounds the time.
pub(crate) async fn send(
    stream: DynStream,
    mut request: Request<Body>,
    what: &'static str,
) -> Result<Exchange> {
    let interim_limit = InterimLimit::default();
    interim_limit.watch(&mut request);
    let (mut sender, driver) = http1::Builder::new()
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD)
        .handshake(TokioIo::new(interim_limit.bound(stream)))
        .await
        .map_err(|error| Error::cut(what, error))?;
    let connection = Connection(tokio::spawn(async move {
        // The error is reported to whoever waits for the answer.
        let _reported_there = driver.await;
    }));
    let response = sender.send_request(request).await.map_err(|error| {
        if is_flood(&error) {
            Error::protocol(Flood)
        } else {
            Error::cut(what, error)
        }
    })?;
    Ok(Exchange {
        response,
        _connection: connection,
    })
}

impl Exchange {
    /// Itself, when envd agreed; its refusal otherwise.
    pub(crate) async fn accepted(self, what: &'static str) -> Result<Self> {
        let status = self.response.status();
        if status.is_success() {
            return Ok(self);
        }
        let body = self.whole(what).await?;
        Err(refusal(status, &body))
    }

    /// The whole body, if it is short.
    pub(crate) async fn whole(self, what: &'static str) -> Result<Bytes> {
        let body = collect_limited(self.response.into_body(), MAX_ANSWER);
        match timeout(CALL_LIMIT, body).await {
            Ok(Ok(body)) => Ok(body),
            Ok(Err(error)) => Err(Error::cut(what, error)),
            Err(_) => Err(Error::TooSlow {
                what,
                limit: CALL_LIMIT,
            }),
        }
    }
}

/// envd's procedures give a code in words, its plain routes the status as a number.
fn refusal(status: StatusCode, body: &[u8]) -> Error {
    #[derive(Deserialize)]
    struct Wire {
        #[serde(default)]
        code: serde_json::Value,
        message: String,
    }
    match serde_json::from_slice::<Wire>(body) {
        Ok(wire) => {
            let code = wire.code.as_str().unwrap_or_else(|| code_of(status));
            Error::refused(code, &wire.message)
        }
        Err(_) => Error::refused(code_of(status), &String::from_utf8_lossy(body)),
    }
}

fn code_of(status: StatusCode) -> &'static str {
    match status.as_u16() {
        400 => "invalid_argument",
        401 | 403 => "unauthenticated",
        404 => "not_found",
        408 | 504 => "deadline_exceeded",
        409 => "already_exists",
        429 | 507 => "resource_exhausted",
        405 | 501 => "unimplemented",
        500 => "internal",
        _ => "unknown",
    }
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_refusals_have_a_code_in_words() {
        let connect = br#"{"code":"unauthenticated","message":"invalid username: 'x'"}"#;
        let shown = refusal(StatusCode::UNAUTHORIZED, connect).to_string();
        assert_eq!(shown, "unauthenticated: invalid username: 'x'");
        let plain = br#"{"code":507,"message":"full"}"#;
        let shown = refusal(StatusCode::INSUFFICIENT_STORAGE, plain).to_string();
        assert_eq!(shown, "resource_exhausted: full");
        let other = refusal(StatusCode::IM_A_TEAPOT, b"short and stout").to_string();
        assert_eq!(other, "unknown: short and stout");
    }

    #[test]
    fn a_long_refusal_is_cut() {
        let refused = refusal(StatusCode::BAD_REQUEST, "ö".repeat(100_000).as_bytes());
        assert!(refused.to_string().len() < 5_000);
    }
}
