//! A process's input as one long request: order is kept, and a process that does not read holds
//! the sender back instead of filling memory.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Value, json};
use tokio::{sync::mpsc, task::JoinHandle, time::timeout};

use super::frame as framed;
use super::{Envd, Messages, encode, process::selector};
use crate::{Error, Result, transport::Body};

/// Proxies close requests that are silent for long.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// How long the last bytes may take once the sender is done.
const FINISH_LIMIT: Duration = Duration::from_secs(30);
/// Chunks in flight between the caller and the connection.
const QUEUE: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputKind {
    Stdin,
    Pty,
}

/// Where to put a process's input. Dropping it ends the request, not the process's stdin.
#[derive(Debug)]
pub struct Input {
    sender: mpsc::Sender<Bytes>,
    request: JoinHandle<Result<()>>,
}

impl Envd {
    pub fn input(&self, pid: u32, kind: InputKind) -> Input {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let envd = self.clone();
        let request = tokio::spawn(async move { envd.stream_input(pid, kind, receiver).await });
        Input { sender, request }
    }

    async fn stream_input(
        &self,
        pid: u32,
        kind: InputKind,
        receiver: mpsc::Receiver<Bytes>,
    ) -> Result<()> {
        let start = frame(&json!({ "start": { "process": selector(pid) } }))?;
        let request = self
            .rpc("process.Process/StreamInput", "application/connect+json")?
            .body(body(start, kind, receiver))
            .map_err(|error| Error::protocol(error.to_string()))?;
        let origin = crate::transport::origin(request.uri());
        let response = self.transport.open(request).await?;
        if !response.status().is_success() {
            return Err(self.refused(&crate::transport::collect(origin, response).await?));
        }
        let mut messages = Messages::new(response.into_body(), self.id.clone());
        while messages.next().await?.is_some() {}
        Ok(())
    }
}

fn body(start: Bytes, kind: InputKind, receiver: mpsc::Receiver<Bytes>) -> Body {
    let frames = stream::unfold(
        (Some(start), receiver),
        move |(start, mut receiver)| async move {
            let next = match start {
                Some(start) => Ok(start),
                None => match timeout(KEEPALIVE, receiver.recv()).await {
                    Ok(Some(chunk)) => data(kind, &chunk),
                    Ok(None) => return None,
                    Err(_) => frame(&json!({ "keepalive": {} })),
                },
            };
            Some((
                next.map(Frame::data).map_err(std::io::Error::other),
                (None, receiver),
            ))
        },
    );
    StreamBody::new(frames).boxed_unsync()
}

fn data(kind: InputKind, chunk: &[u8]) -> Result<Bytes> {
    let name = match kind {
        InputKind::Stdin => "stdin",
        InputKind::Pty => "pty",
    };
    let input = Value::Object(
        [(name.to_owned(), STANDARD.encode(chunk).into())]
            .into_iter()
            .collect(),
    );
    frame(&json!({ "data": { "input": input } }))
}

fn frame(message: &Value) -> Result<Bytes> {
    framed(&encode(message)?)
}

impl Input {
    /// Waits while the process is behind. `false`: the request has ended; [`Input::finish`] says
    /// why.
    pub async fn send(&self, chunk: Bytes) -> bool {
        self.sender.send(chunk).await.is_ok()
    }

    /// Waits until everything has been handed to the process.
    pub async fn finish(self) -> Result<()> {
        drop(self.sender);
        let abort = self.request.abort_handle();
        match timeout(FINISH_LIMIT, self.request).await {
            Ok(Ok(result)) => result,
            Ok(Err(gone)) => Err(Error::protocol(gone.to_string())),
            Err(_) => {
                abort.abort();
                Err(Error::Timeout {
                    what: "handing over the input",
                    limit: FINISH_LIMIT,
                })
            }
        }
    }
}
