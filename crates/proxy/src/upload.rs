//! A client's body on its way into the sandbox: whoever sends it in tiny pieces waits, as servers
//! inside do ([`soulbox_outgoing::ChunkThrottle`]). Each stream by itself: one client's must not slow
//! another's.

use std::{
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use soulbox_outgoing::{ChunkThrottle, TokenBucket};

use crate::{Counters, proxy::Inner};

pub(crate) struct Upload<B> {
    body: B,
    pace: ChunkThrottle,
    counters: Arc<Counters>,
}

impl<B> Upload<B> {
    pub(crate) fn new(body: B, proxy: &Inner) -> Self {
        let bucket = TokenBucket::new(proxy.config.small_chunks_per_second);
        Self {
            body,
            pace: ChunkThrottle::sharing(Arc::new(bucket)),
            counters: Arc::clone(&proxy.counters),
        }
    }
}

impl<B: HttpBody<Data = Bytes> + Unpin> HttpBody for Upload<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        ready!(self.pace.poll_next(cx));
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
            && self.pace.took(data.len())
        {
            self.counters.slowed.fetch_add(1, Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
