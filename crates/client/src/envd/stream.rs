//! Messages of a server stream.

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::Deserialize;
use tokio::time::timeout;

use super::IDLE_LIMIT;
use crate::{
    Error, Result,
    envelope::{Decoder, Frame},
};

#[derive(Deserialize)]
pub(super) struct WireError {
    pub code: String,
    #[serde(default)]
    pub message: String,
}

#[derive(Deserialize)]
struct EndOfStream {
    #[serde(default)]
    error: Option<WireError>,
}

/// Raw messages, in order, until the end frame.
#[derive(Debug)]
pub struct Messages {
    body: Incoming,
    decoder: Decoder,
    sandbox: String,
    ended: bool,
}

impl Messages {
    pub(super) fn new(body: Incoming, sandbox: String) -> Self {
        Self {
            body,
            decoder: Decoder::default(),
            sandbox,
            ended: false,
        }
    }

    /// The next message; `None` after a good end. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        while !self.ended {
            let frame = self
                .decoder
                .take_frame()
                .map_err(|error| Error::protocol(error.to_string()))?;
            match frame {
                Some(Frame::Message(message)) => return Ok(Some(message)),
                Some(Frame::End(end)) => {
                    self.ended = true;
                    let end: EndOfStream = serde_json::from_slice(&end)
                        .map_err(|error| Error::protocol(error.to_string()))?;
                    return end
                        .error
                        .map_or(Ok(None), |error| Err(Error::Rpc(error.into())));
                }
                None => self.read().await?,
            }
        }
        Ok(None)
    }

    async fn read(&mut self) -> Result<()> {
        let what = "hearing from the sandbox";
        let frame = timeout(IDLE_LIMIT, self.body.frame())
            .await
            .map_err(|_| Error::Timeout {
                what,
                limit: IDLE_LIMIT,
            })?;
        // A sandbox that dies cuts its connections, in the middle of a frame or between two.
        let Some(Ok(frame)) = frame else {
            self.ended = true;
            return Err(Error::Cut {
                id: self.sandbox.clone(),
            });
        };
        if let Some(data) = frame.data_ref() {
            self.decoder.feed(data);
        }
        Ok(())
    }
}
