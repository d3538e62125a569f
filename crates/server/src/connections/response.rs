//! A response that is sent to the client: it keeps the connection busy until its body has been handed
//! over.
//!
//! Over HTTP/2 a client takes bytes by giving window, and hyper polls for the next chunk when there is
//! window for the one before. So a body that has given out a chunk waits for the client until it is
//! polled again.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};
use soulbox_proxy::{Body, BoxError};
use tokio_util::sync::CancellationToken;

use super::{limiter::InFlight, streams};

/// A larger chunk would make a slow client look like one that takes nothing.
const MAX_CHUNK: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct ResponseBody {
    body: Body,
    /// What is left of a larger chunk.
    rest: Bytes,
    /// `None` for what comes before a tunnel.
    in_flight: Option<InFlight>,
    /// Resets the stream of HTTP/2. With HTTP/1.1 the socket knows whether the client reads.
    reset: Option<CancellationToken>,
}

pub(super) fn track(response: Response<Body>, in_flight: InFlight) -> Response<ResponseBody> {
    let reset = streams::reset_of_this_stream();
    let in_flight = if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        in_flight.keep_until_close();
        None
    } else {
        Some(in_flight)
    };
    response.map(|body| ResponseBody {
        body,
        rest: Bytes::new(),
        in_flight,
        reset,
    })
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let (Some(in_flight), Some(reset)) = (&this.in_flight, &this.reset) else {
            return Pin::new(&mut this.body).poll_frame(cx);
        };
        in_flight.unblock();
        if this.rest.is_empty() {
            match Pin::new(&mut this.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                other => return other,
            }
        }
        let chunk = this.rest.split_to(this.rest.len().min(MAX_CHUNK));
        in_flight.block(reset.clone());
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // hyper asks before the first frame.
        self.body.size_hint()
    }
}
