//! A server may send any number of interim answers (1xx) before its answer, and hyper passes over
//! them in a loop: 25 bytes each, a head to parse for each, for ever. Here they are counted, and
//! after too many the connection reads no more. The size of each head is hyper's to bound.

use std::{
    error::Error as StdError,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use http::Request;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Servers send one or two; those that say every 20 s that they still work, in five minutes.
pub const MOST_INTERIM: usize = 16;

/// Why a connection was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {MOST_INTERIM} interim answers (1xx) came before the answer")]
pub struct Flood;

/// Whether this is why a request failed.
pub fn is_flood(error: &(dyn StdError + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        // An error of I/O does not show what it wraps as its source.
        let wrapped = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        if error.is::<Flood>() || matches!(wrapped, Some(inner) if inner.is::<Flood>()) {
            return true;
        }
        next = error.source();
    }
    false
}

/// The limit on interim responses of one connection.
#[derive(Debug, Clone, Default)]
pub struct InterimLimit {
    flooded: Arc<AtomicBool>,
}

impl InterimLimit {
    /// What is read through the result is bounded, given that each request is [watched](Self::watch).
    pub fn bound<S>(&self, stream: S) -> LimitedStream<S> {
        LimitedStream {
            stream,
            flooded: Arc::clone(&self.flooded),
        }
    }

    /// Before this request is sent over this connection.
    pub fn watch<B>(&self, request: &mut Request<B>) {
        let interim_limit = self.clone();
        count(request, move || interim_limit.flood());
    }

    pub(crate) fn flood(&self) {
        self.flooded.store(true, Relaxed);
    }
}

/// Calls `flooded` when there were too many.
pub(crate) fn count<B>(request: &mut Request<B>, flooded: impl Fn() + Send + Sync + 'static) {
    let seen = AtomicUsize::new(0);
    hyper::ext::on_informational(request, move |_| {
        if seen.fetch_add(1, Relaxed) >= MOST_INTERIM {
            flooded();
        }
    });
}

/// A connection that reads no more once it was flooded: hyper takes nothing but the end of what it
/// reads for a reason to stop.
#[derive(Debug)]
pub struct LimitedStream<S> {
    stream: S,
    flooded: Arc<AtomicBool>,
}

impl<S: AsyncRead + Unpin> AsyncRead for LimitedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.flooded.load(Relaxed) {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, Flood)));
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LimitedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
