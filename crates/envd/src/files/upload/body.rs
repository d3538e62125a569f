//! The bytes of an upload: decompressed if need be, and given up when they stop coming.

use std::{io::Write, time::Duration};

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use futures_util::Stream;
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

use crate::http::reply::Failure;

const IDLE: Duration = Duration::from_mins(2);
/// Compressed bytes at a time: even a bomb's worth of them expands to a few MiB only.
const GZIP_STEP: usize = 4 << 10;

/// After a refusal the rest is still received, within limits: a client that is in the middle of
/// sending would otherwise see a broken connection instead of the answer.
const DRAIN_TIME: Duration = Duration::from_secs(5);
const DRAIN_BYTES: usize = 16 << 20;

pub(crate) struct UploadBody {
    /// Taken when dropped.
    body: Option<Incoming>,
    gzip: Option<MultiGzDecoder<Vec<u8>>>,
    /// Received but not yet decompressed.
    waiting: Bytes,
    ended: bool,
}

impl UploadBody {
    pub(crate) fn new(body: Incoming) -> Self {
        Self {
            body: Some(body),
            gzip: None,
            waiting: Bytes::new(),
            ended: false,
        }
    }

    pub(super) fn decode(&mut self, headers: &HeaderMap) -> Result<(), Failure> {
        match headers.get(header::CONTENT_ENCODING).map(|v| v.to_str()) {
            None | Some(Ok("" | "identity")) => {}
            Some(Ok("gzip")) => self.gzip = Some(MultiGzDecoder::new(Vec::new())),
            Some(other) => {
                return Err(Failure::bad_request(format!(
                    "unsupported content encoding {:?}: use gzip or identity",
                    other.unwrap_or("?")
                )));
            }
        }
        Ok(())
    }

    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let Some(decoder) = &mut self.gzip else {
                return receive(&mut self.body).await;
            };
            if self.waiting.is_empty() && !self.ended {
                match receive(&mut self.body).await? {
                    Some(data) => self.waiting = data,
                    None => self.ended = true,
                }
            }
            if self.ended {
                let rest = self.gzip.take().map(MultiGzDecoder::finish).transpose();
                let rest = rest.map_err(|e| not_gzip(&e))?.unwrap_or_default();
                return Ok((!rest.is_empty()).then(|| rest.into()));
            }
            let step = self.waiting.split_to(self.waiting.len().min(GZIP_STEP));
            decoder.write_all(&step).map_err(|e| not_gzip(&e))?;
            let plain = std::mem::take(decoder.get_mut());
            if !plain.is_empty() {
                return Ok(Some(plain.into()));
            }
        }
    }

    /// For multer, which takes whatever is ready before it gives anything back: a pause before each
    /// piece keeps its buffer at one piece.
    pub(super) fn into_stream(self) -> impl Stream<Item = Result<Bytes, Failure>> + Send {
        futures_util::stream::unfold(self, |mut body| async move {
            tokio::task::yield_now().await;
            body.next().await.transpose().map(|item| (item, body))
        })
    }
}

impl Drop for UploadBody {
    fn drop(&mut self) {
        if tokio::runtime::Handle::try_current().is_err() {
            // envd itself ends.
            return;
        }
        if let Some(mut body) = self.body.take().filter(|body| !body.is_end_stream()) {
            tokio::task::spawn_local(tokio::time::timeout(DRAIN_TIME, async move {
                let mut left = DRAIN_BYTES;
                while let Some(Ok(frame)) = body.frame().await {
                    match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
                        Some(rest) => left = rest,
                        None => break,
                    }
                }
            }));
        }
    }
}

async fn receive(body: &mut Option<Incoming>) -> Result<Option<Bytes>, Failure> {
    let Some(body) = body else { return Ok(None) };
    loop {
        let frame = tokio::time::timeout(IDLE, body.frame())
            .await
            .map_err(|_| {
                Failure::new(
                    StatusCode::REQUEST_TIMEOUT,
                    "the upload stalled and was given up",
                )
            })?;
        match frame {
            None => return Ok(None),
            Some(Err(e)) => return Err(Failure::bad_request(format!("reading the upload: {e}"))),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) if !data.is_empty() => return Ok(Some(data)),
                _ => {}
            },
        }
    }
}

fn not_gzip(error: &std::io::Error) -> Failure {
    Failure::bad_request(format!("the body is not valid gzip: {error}"))
}
