//! What is left of a request's body when its response did not need it: refused, or answered early.
//!
//! With HTTP/1.1 the next request on the connection follows the rest of this body. hyper closes the
//! connection when that rest is not read, and the response does not announce it; the client's pool
//! may use the connection for another request at that moment. So the rest is read and discarded,
//! within limits: a client that has sent all of it can reuse the connection.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Version, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;

/// More than the buffers between us and a client that has sent everything hold.
const MAX_REST: usize = 64 << 20;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// A request's body that need not be read to its end.
#[derive(Debug)]
pub(crate) struct RequestBody {
    /// `None` once it has been read to its end.
    rest: Option<Incoming>,
    asked_for: Arc<AtomicBool>,
    http1: bool,
    waits: bool,
}

/// The client sends its body only after `100 Continue`.
#[derive(Debug)]
pub(crate) struct Waiting {
    asked_for: Arc<AtomicBool>,
}

impl RequestBody {
    /// The second is `Some` when the client waits for `100 Continue`.
    pub(crate) fn wrap(request: Request<Incoming>) -> (Request<Self>, Option<Waiting>) {
        let http1 = request.version() < Version::HTTP_2; // HTTP/2 ends just the stream
        let waits = http1 && request.headers().contains_key(header::EXPECT);
        let asked_for = Arc::new(AtomicBool::new(false));
        let waiting = waits.then(|| Waiting {
            asked_for: Arc::clone(&asked_for),
        });
        let request = request.map(|body| Self {
            rest: Some(body),
            asked_for,
            http1,
            waits,
        });
        (request, waiting)
    }
}

impl Waiting {
    /// Without `100 Continue` the client may send the body or not, so what comes next on the
    /// connection is unknown.
    pub(crate) fn settle<B>(self, response: &mut Response<B>) {
        if !self.asked_for.load(Relaxed) {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(rest) = &mut self.rest else {
            return Poll::Ready(None);
        };
        let frame = Pin::new(rest).poll_frame(cx);
        if let Poll::Ready(None | Some(Err(_))) = frame {
            self.rest = None;
        }
        self.asked_for.store(true, Relaxed);
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.rest.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.rest
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), Incoming::size_hint)
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let rest = self.rest.take().filter(|rest| !rest.is_end_stream());
        let comes = self.http1 && (!self.waits || self.asked_for.load(Relaxed));
        if let Some(rest) = rest
            && comes
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(tokio::time::timeout(DISCARD_TIMEOUT, discard(rest)));
        }
    }
}

/// The cost of a chunk is at least that of so many bytes.
const MIN_CHUNK_COST: usize = 512;

async fn discard(mut rest: Incoming) {
    let mut left = MAX_REST;
    while let Some(Ok(frame)) = rest.frame().await {
        let length = frame.data_ref().map_or(0, Bytes::len);
        match left.checked_sub(length.max(MIN_CHUNK_COST)) {
            Some(less) => left = less,
            None => return,
        }
    }
}
