//! When bytes last moved on a stream. The connection into the sandbox sees both directions, so it is
//! wrapped here.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use soulbox_runtime::DynStream;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

use crate::{Counters, stream_limiter::StreamPermit};

#[derive(Debug)]
pub(crate) struct Activity {
    start: Instant,
    last_millis: AtomicU64,
}

impl Activity {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            last_millis: AtomicU64::new(0),
        })
    }

    fn touch(&self) {
        let millis = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_millis.store(millis, Relaxed);
    }

    fn last(&self) -> Instant {
        self.start + Duration::from_millis(self.last_millis.load(Relaxed))
    }

    /// Returns when nothing has moved for `limit`.
    pub(crate) async fn idle(self: Arc<Self>, limit: Duration) {
        loop {
            let until = self.last() + limit;
            if Instant::now() >= until {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}

/// The connection into the sandbox, which counts every byte.
pub(crate) struct Metered {
    // In this order: the descriptor is closed before the permit is given back.
    inner: DynStream,
    _permit: Arc<StreamPermit>,
    activity: Arc<Activity>,
    counters: Arc<Counters>,
}

impl Metered {
    pub(crate) fn new(
        inner: DynStream,
        permit: Arc<StreamPermit>,
        activity: Arc<Activity>,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            inner,
            _permit: permit,
            activity,
            counters,
        }
    }
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        let read = buf.filled().len() - before;
        self.counters.from_sandboxes.fetch_add(read as u64, Relaxed);
        self.activity.touch();
        Poll::Ready(Ok(()))
    }
}

impl Metered {
    fn wrote(&self, result: io::Result<usize>) -> Poll<io::Result<usize>> {
        if let Ok(bytes) = result {
            self.counters.to_sandboxes.fetch_add(bytes as u64, Relaxed);
            self.activity.touch();
        }
        Poll::Ready(result)
    }
}

impl AsyncWrite for Metered {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = ready!(Pin::new(&mut self.inner).poll_write(cx, buf));
        self.wrote(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = ready!(Pin::new(&mut self.inner).poll_write_vectored(cx, bufs));
        self.wrote(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_idle_only_when_nothing_moved_for_the_whole_limit() {
        let activity = Activity::new();
        let started = Instant::now();
        let idle = tokio::spawn(Arc::clone(&activity).idle(Duration::from_secs(10)));
        tokio::time::sleep(Duration::from_secs(7)).await;
        activity.touch();
        idle.await.unwrap();
        assert_eq!(started.elapsed().as_secs(), 17);
    }
}
