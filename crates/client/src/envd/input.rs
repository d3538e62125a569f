//! A process's input as one long request: order is kept, and a process that does not read holds
//! the sender back instead of filling memory.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use soulbox_envd_protocol::{
    Encoding,
    process::{Empty, ProcessInput, StreamInputData, StreamInputRequest},
};
use tokio::{sync::mpsc, task::JoinHandle, time::timeout};

use super::{Envd, Messages, frame, process::select};
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
        let start = frame(&StreamInputRequest {
            start: Some(select(pid)),
            ..StreamInputRequest::default()
        })?;
        let request = self
            .rpc("process.Process/StreamInput", Encoding::Stream)?
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
                    Err(_) => frame(&StreamInputRequest {
                        keepalive: Some(Empty {}),
                        ..StreamInputRequest::default()
                    }),
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
    let input = Some(kind.input(chunk));
    frame(&StreamInputRequest {
        data: Some(StreamInputData { input }),
        ..StreamInputRequest::default()
    })
}

impl InputKind {
    pub(super) fn input(self, bytes: &[u8]) -> ProcessInput {
        let mut input = ProcessInput::default();
        match self {
            Self::Stdin => input.stdin = Some(bytes.to_vec()),
            Self::Pty => input.pty = Some(bytes.to_vec()),
        }
        input
    }
}

impl Input {
    /// Waits while the process is behind. `false`: the request has ended; [`Input::finish`] says
    /// why.
    pub async fn send(&self, chunk: Bytes) -> bool {
        self.sender.send(chunk).await.is_ok()
    }

    /// Waits until everything has been handed to the process, however long it takes to read; envd
    /// gives up on one that takes nothing for long.
    pub async fn drained(self) -> Result<()> {
        drop(self.sender);
        let ended = self.request.await;
        ended.map_err(|gone| Error::protocol(gone.to_string()))?
    }

    /// As [`Input::drained`], within a limit.
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
