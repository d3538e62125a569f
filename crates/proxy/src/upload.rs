//! The body of a client's request, as it is sent into the sandbox. Tiny chunks are rate limited, as
//! those of servers inside are ([`soulbox_outgoing::Pace`]); for each stream separately, as one client
//! must not slow down another.

use std::{
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use soulbox_outgoing::{Bucket, Pace};

use crate::{Counters, proxy::Inner};

pub(crate) struct Upload<B> {
    body: B,
    pace: Pace,
    counters: Arc<Counters>,
}

impl<B> Upload<B> {
    pub(crate) fn new(body: B, proxy: &Inner) -> Self {
        let bucket = Bucket::new(proxy.config.small_chunks_per_second);
        Self {
            body,
            pace: Pace::sharing(Arc::new(bucket)),
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
