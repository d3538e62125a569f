//! Bodies of any length: they end early only when nothing moves.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http::Request;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use crate::{
    Error, Result,
    transport::{self, Answer, Transport},
};

/// How long an upload may make no progress at all.
const STALL_LIMIT: Duration = Duration::from_mins(1);

/// Sends the request with this body.
pub(crate) async fn send(
    transport: &Transport,
    request: http::request::Builder,
    content: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
) -> Result<Answer> {
    let started = Instant::now();
    let progress = Arc::new(AtomicU64::new(0));
    let mark = progress.clone();
    let content = content.map(move |chunk| {
        mark.store(millis(started.elapsed()), Ordering::Relaxed);
        chunk.map(Frame::data)
    });
    let request: Request<_> = request
        .body(StreamBody::new(content).boxed_unsync())
        .map_err(|error| Error::protocol(error.to_string()))?;
    let exchange = async {
        let origin = transport::origin(request.uri());
        let response = transport.open(request).await?;
        transport::collect(origin, response).await
    };
    tokio::select! {
        result = exchange => result,
        () = stalled(started, progress) => {
            Err(Error::Timeout { what: "the upload", limit: STALL_LIMIT })
        }
    }
}

/// Returns when nothing has been read from the source, and so nothing sent, for a minute.
async fn stalled(started: Instant, progress: Arc<AtomicU64>) {
    let mut checks = tokio::time::interval(Duration::from_secs(5));
    loop {
        checks.tick().await;
        let last = progress.load(Ordering::Relaxed);
        if millis(started.elapsed()).saturating_sub(last) > millis(STALL_LIMIT) {
            return;
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
