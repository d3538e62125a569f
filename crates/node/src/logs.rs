//! envd's own log, asked for over a connection into the sandbox.
//!
//! The answer comes from inside: it is bounded, and nothing in it is believed.

use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::{Request, body::Bytes};
use hyper_util::rt::TokioIo;
use soulbox_runtime::{DynStream, LogEntry};
use soulbox_types::{NODE_TOKEN_HEADER, Secret};

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
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let request = Request::get("/soulbox/logs")
        .header("host", "localhost")
        .header(NODE_TOKEN_HEADER, token.expose())
        .body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await?;
    let body = Limited::new(response.into_body(), MAX_BYTES)
        .collect()
        .await?
        .to_bytes();
    drop(sender);
    driver.abort();
    Ok(serde_json::from_slice(&body)?)
}
