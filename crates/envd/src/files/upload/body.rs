//! The bytes of an upload: decompressed if need be, and given up when they stop coming.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use futures_util::Stream;
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

use super::stalled;
use crate::http::{reply::Failure, socket::SocketBody};

pub(super) const IDLE: Duration = Duration::from_mins(2);
/// Compressed bytes at a time: even a bomb's worth of them expands to a few MiB only.
const GZIP_STEP: usize = 4 << 10;

/// After a refusal the rest is still received, within limits: a client that is in the middle of
/// sending would otherwise see a broken connection instead of the answer.
const DRAIN_TIME: Duration = Duration::from_secs(5);
const DRAIN_BYTES: usize = 16 << 20;

pub(crate) struct UploadBody {
    /// Taken when dropped.
    body: Option<Source>,
    gzip: Option<MultiGzDecoder<Vec<u8>>>,
    /// Received but not yet decompressed.
    waiting: Bytes,
    ended: bool,
}

enum Source {
    Hyper(Incoming),
    Socket(SocketBody),
}

impl UploadBody {
    pub(crate) fn new(body: Incoming) -> Self {
        Self::from(Source::Hyper(body))
    }

    pub(crate) fn in_socket(body: SocketBody) -> Self {
        Self::from(Source::Socket(body))
    }

    fn from(source: Source) -> Self {
        Self {
            body: Some(source),
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

    /// When its bytes are those of the file, and nobody else's to read.
    pub(super) fn plain_in_socket(&mut self) -> Option<&mut SocketBody> {
        match &mut self.body {
            Some(Source::Socket(body)) if self.gzip.is_none() => Some(body),
            _ => None,
        }
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
    /// chunk keeps its buffer at one chunk. What it has taken and given nothing back for is bounded:
    /// until it finds where a part begins or ends, it keeps everything.
    pub(super) fn into_stream(
        self,
        unread: Arc<Unread>,
    ) -> impl Stream<Item = Result<Bytes, Failure>> + Send {
        futures_util::stream::unfold((self, unread), |(mut body, unread)| async move {
            tokio::task::yield_now().await;
            if unread.is_too_much() {
                let message = "the form does not keep to its boundary: no part of it begins or \
                               ends within 8 MiB";
                return Some((Err(Failure::bad_request(message)), (body, unread)));
            }
            let item = body.next().await.transpose()?;
            if let Ok(data) = &item {
                unread.add(data.len());
            }
            Some((item, (body, unread)))
        })
    }
}

/// How much a parser has taken since it last gave something back.
#[derive(Default)]
pub(super) struct Unread(AtomicUsize);

impl Unread {
    const MOST: usize = 8 << 20;

    fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    fn is_too_much(&self) -> bool {
        self.0.load(Ordering::Relaxed) > Self::MOST
    }

    pub(super) fn gave_something_back(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl Drop for UploadBody {
    fn drop(&mut self) {
        if tokio::runtime::Handle::try_current().is_err() {
            // envd itself ends.
            return;
        }
        // What is in a socket is received by those who answer over it.
        let Some(Source::Hyper(mut body)) = self.body.take() else {
            return;
        };
        if !body.is_end_stream() {
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

async fn receive(body: &mut Option<Source>) -> Result<Option<Bytes>, Failure> {
    let next = async {
        match body {
            None => Ok(None),
            Some(Source::Hyper(body)) => hyper_data(body).await.map_err(|e| e.to_string()),
            Some(Source::Socket(body)) => body.next().await.map_err(|e| e.to_string()),
        }
    };
    tokio::time::timeout(IDLE, next)
        .await
        .map_err(|_| stalled())?
        .map_err(|error| Failure::bad_request(format!("reading the upload: {error}")))
}

async fn hyper_data(body: &mut Incoming) -> Result<Option<Bytes>, hyper::Error> {
    while let Some(frame) = body.frame().await.transpose()? {
        if let Ok(data) = frame.into_data()
            && !data.is_empty()
        {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

fn not_gzip(error: &std::io::Error) -> Failure {
    Failure::bad_request(format!("the body is not valid gzip: {error}"))
}
