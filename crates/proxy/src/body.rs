//! The response of a sandbox, as it is sent to the client.
//!
//! When the sandbox or its server breaks off, the body ends with an error. The listener then
//! aborts the connection (HTTP/1.1) or resets the stream (HTTP/2): by that E2B's clients distinguish
//! a killed sandbox from a finished command.

use std::{
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use soulbox_outgoing::ChunkThrottle;
use soulbox_types::SandboxId;
use tokio_util::task::AbortOnDropHandle;

use crate::{Counters, proxy::Inner, sandbox_tracker::Stream, stream_limiter::StreamPermit};

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// Body of every response of the proxy.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Cut {
    #[error("the sandbox ended")]
    SandboxEnded,
    #[error("nothing moved for too long")]
    Idle,
    #[error("the server in the sandbox broke off")]
    BrokenOff(#[source] hyper::Error),
}

pub(crate) struct ResponseBody {
    pub(crate) answer: Incoming,
    pub(crate) id: SandboxId,
    /// The end of the connection is the end of the body, so a dead sandbox looks like a complete one.
    pub(crate) ends_with_connection: bool,
    pub(crate) ended: Pin<Box<dyn Future<Output = ()> + Send>>,
    pub(crate) idle: Pin<Box<dyn Future<Output = ()> + Send>>,
    pub(crate) pace: ChunkThrottle,
    pub(crate) open: OpenStream,
    pub(crate) proxy: Arc<Inner>,
}

/// Held as long as the stream is open. Dropping it closes the connection into the sandbox. That may
/// be closed before: it ends with the sandbox, the stream when its client has noticed.
pub(crate) struct OpenStream {
    counters: Arc<Counters>,
    _stream: Stream,
    /// Where a task of its own drives it.
    _connection: Option<AbortOnDropHandle<()>>,
    /// A response that its client does not read counts against the limit also after its sandbox.
    _permit: Arc<StreamPermit>,
}

impl OpenStream {
    pub(crate) fn new(
        counters: Arc<Counters>,
        stream: Stream,
        permit: Arc<StreamPermit>,
        connection: Option<AbortOnDropHandle<()>>,
    ) -> Self {
        counters.open.fetch_add(1, Relaxed);
        Self {
            counters,
            _stream: stream,
            _connection: connection,
            _permit: permit,
        }
    }

    fn was_slowed(&self) {
        self.counters.slowed.fetch_add(1, Relaxed);
    }

    pub(crate) fn was_cut(&self) {
        self.counters.cut.fetch_add(1, Relaxed);
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.counters.open.fetch_sub(1, Relaxed);
    }
}

impl ResponseBody {
    fn cut(&self, why: Cut) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.open.was_cut();
        tracing::debug!(sandbox_id = %self.id, reason = %why, "cut a stream");
        Poll::Ready(Some(Err(why.into())))
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.ended.as_mut().poll(cx).is_ready() {
            return self.cut(Cut::SandboxEnded);
        }
        ready!(self.pace.poll_next(cx));
        loop {
            return match Pin::new(&mut self.answer).poll_frame(cx) {
                // Clients with HTTP/2 count empty frames as an attack.
                Poll::Ready(Some(Ok(frame))) if frame.data_ref().is_some_and(Bytes::is_empty) => {
                    continue;
                }
                Poll::Ready(Some(Ok(frame))) => {
                    if frame
                        .data_ref()
                        .is_some_and(|data| self.pace.took(data.len()))
                    {
                        self.open.was_slowed();
                    }
                    Poll::Ready(Some(Ok(frame)))
                }
                Poll::Ready(Some(Err(error))) => self.cut(Cut::BrokenOff(error)),
                // The connection ended with the sandbox, after the check above.
                Poll::Ready(None) if self.ended.as_mut().poll(cx).is_ready() => {
                    self.cut(Cut::SandboxEnded)
                }
                Poll::Ready(None)
                    if self.ends_with_connection && !self.proxy.sandboxes.runs(&self.id) =>
                {
                    self.cut(Cut::SandboxEnded)
                }
                Poll::Ready(None) => Poll::Ready(None),
                Poll::Pending if self.idle.as_mut().poll(cx).is_ready() => self.cut(Cut::Idle),
                Poll::Pending => Poll::Pending,
            };
        }
    }

    fn is_end_stream(&self) -> bool {
        self.answer.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.answer.size_hint()
    }
}
