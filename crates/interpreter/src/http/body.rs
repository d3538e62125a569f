//! Bodies: what comes in is bounded, what goes out is whole or line by line.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::Request;
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use tokio::{sync::mpsc, time::timeout};

use super::reply::Failure;

const MAX_REQUEST: usize = 64 << 20;
const TIMEOUT: Duration = Duration::from_mins(1);

pub(crate) enum Body {
    Whole(Option<Bytes>),
    /// Ends when the sender is gone. Dropping it notifies the sender that nobody reads any more.
    Lines(mpsc::Receiver<Bytes>),
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Lines(lines) => lines
                .poll_recv(context)
                .map(|line| line.map(|line| Ok(Frame::data(line)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Lines(_) => SizeHint::default(),
        }
    }
}

pub(crate) async fn read(request: Request<Incoming>) -> Result<Bytes, Failure> {
    let body = Limited::new(request.into_body(), MAX_REQUEST);
    match timeout(TIMEOUT, body.collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(_)) => Err(Failure::too_large(MAX_REQUEST)),
        Err(_) => Err(Failure::too_slow()),
    }
}
