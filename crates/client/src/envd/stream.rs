//! Messages of a server stream.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use soulbox_envd_protocol::{
    EndOfStream,
    frames::{Decoder, Frame},
};
use tokio::time::timeout;

use super::IDLE_LIMIT;
use crate::{Error, Result};

/// envd sends 32 KiB of output per event, a third more in base64; a replay may be larger.
const MAX_FRAME: usize = 8 << 20;
const GIVE_BACK_LIMIT: Duration = Duration::from_millis(100);

/// Raw messages, in order, until the end frame.
#[derive(Debug)]
pub struct Messages {
    body: Incoming,
    decoder: Decoder,
    sandbox: String,
    /// What the last frame said, until it has been passed on.
    end: Option<EndOfStream>,
    ended: bool,
}

impl Messages {
    pub(super) fn new(body: Incoming, sandbox: String) -> Self {
        Self {
            body,
            decoder: Decoder::new(MAX_FRAME),
            sandbox,
            end: None,
            ended: false,
        }
    }

    /// The next message; `None` after a good end. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        while !self.ended {
            if self.end.is_some() {
                self.give_back().await;
                self.ended = true;
                let error = self.end.take().and_then(|end| end.error);
                return error.map_or(Ok(None), |error| Err(Error::Rpc(error.into())));
            }
            let frame = self
                .decoder
                .take_frame()
                .map_err(|error| Error::protocol(error.to_string()))?;
            match frame {
                Some(Frame::Message(message)) => return Ok(Some(message)),
                Some(Frame::End(end)) => {
                    let end = serde_json::from_slice(&end)
                        .map_err(|error| Error::protocol(error.to_string()))?;
                    self.end = Some(end);
                }
                None => self.read().await?,
            }
        }
        Ok(None)
    }

    /// The connection serves the next request only when the body was read to its very end, which
    /// comes with the last frame or right after it.
    async fn give_back(&mut self) {
        let rest = async { while let Some(Ok(_)) = self.body.frame().await {} };
        // A server that is slow here has sent everything: only the connection is lost.
        timeout(GIVE_BACK_LIMIT, rest).await.ok();
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
