//! envd's own log, asked for over a connection into the sandbox.
//!
//! The answer comes from inside: it is bounded, and nothing in it is believed.

mod ended;
mod kept;

use std::time::Duration;

use http_body_util::Empty;
use hyper::{Request, body::Bytes};
use hyper_util::rt::TokioIo;
use soulbox_outgoing::{InterimLimit, collect_limited};
use soulbox_runtime::{DynStream, LogEntry};
use soulbox_types::{NODE_TOKEN_HEADER, Secret};
use tokio_util::task::AbortOnDropHandle;

pub(crate) use ended::EndedLogs;
pub(crate) use kept::{AnsweringEnvd, keep_all, keep_said, merged, said_before_a_pause};

const LIMIT: Duration = Duration::from_secs(5);
const MAX_BYTES: usize = 2 << 20;

/// Empty when envd does not answer as it should: a log that cannot be had is no reason to fail.
pub(crate) async fn from_envd(stream: DynStream, token: &Secret) -> Vec<LogEntry> {
    match tokio::time::timeout(LIMIT, ask(stream, token)).await {
        Ok(Ok(entries)) => entries,
        Ok(Err(error)) => {
            tracing::debug!(%error, "no log from envd");
            Vec::new()
        }
        Err(_) => {
            tracing::debug!("no log from envd in time");
            Vec::new()
        }
    }
}

async fn ask(
    stream: DynStream,
    token: &Secret,
) -> Result<Vec<LogEntry>, Box<dyn std::error::Error + Send + Sync>> {
    let heads = InterimLimit::default();
    let stream = TokioIo::new(heads.bound(stream));
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    // Ends with this call, also when it is given up.
    let _driver = AbortOnDropHandle::new(tokio::spawn(connection));
    let mut request = Request::get("/soulbox/logs")
        .header("host", "localhost")
        .header(NODE_TOKEN_HEADER, token.expose())
        .body(Empty::<Bytes>::new())?;
    heads.watch(&mut request);
    let response = sender.send_request(request).await?;
    let body = collect_limited(response.into_body(), MAX_BYTES).await?;
    Ok(serde_json::from_slice(&body)?)
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_flood_of_interim_answers_is_given_up_soon() {
        let (ours, mut theirs) = tokio::io::duplex(16 << 10);
        let flood = tokio::spawn(async move {
            let mut sent = 0_usize;
            drop(theirs.read(&mut [0; 1024]).await);
            let many = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(100);
            while theirs.write_all(&many).await.is_ok() {
                sent += many.len();
            }
            sent
        });
        let entries = from_envd(Box::new(ours), &Secret::new("x")).await;
        assert!(entries.is_empty());
        let sent = flood.await.unwrap();
        assert!(sent < 256 << 10, "{sent} bytes were taken");
    }
}
