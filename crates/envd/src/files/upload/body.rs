//! The bytes of an upload: decompressed if need be, and given up when they stop coming.

use std::{io::Write, time::Duration};

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use futures_util::Stream;
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::http::reply::Failure;

const IDLE: Duration = Duration::from_secs(120);
/// Compressed bytes at a time: even a bomb's worth of them expands to a few MiB only.
const GZIP_STEP: usize = 4 << 10;

pub(super) struct UploadBody {
    body: Incoming,
    gzip: Option<MultiGzDecoder<Vec<u8>>>,
    /// Received but not yet decompressed.
    waiting: Bytes,
    ended: bool,
}

impl UploadBody {
    pub(super) fn new(body: Incoming, headers: &HeaderMap) -> Result<Self, Failure> {
        let encoding = headers.get(header::CONTENT_ENCODING).map(|v| v.to_str());
        let gzip = match encoding {
            None | Some(Ok("" | "identity")) => None,
            Some(Ok("gzip")) => Some(MultiGzDecoder::new(Vec::new())),
            Some(other) => {
                return Err(Failure::bad_request(format!(
                    "unsupported content encoding {:?}: use gzip or identity",
                    other.unwrap_or("?")
                )));
            }
        };
        Ok(Self { body, gzip, waiting: Bytes::new(), ended: false })
    }

    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let Some(decoder) = &mut self.gzip else { return receive(&mut self.body).await };
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

async fn receive(body: &mut Incoming) -> Result<Option<Bytes>, Failure> {
    loop {
        let frame = tokio::time::timeout(IDLE, body.frame()).await.map_err(|_| {
            Failure::new(StatusCode::REQUEST_TIMEOUT, "the upload stalled and was given up")
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
