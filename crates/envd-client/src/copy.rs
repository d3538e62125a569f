//! Files into a sandbox: E2B's COPY. envd unpacks them there, so no path of a user's is ever
//! followed on the host.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use http::Method;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use parking_lot::Mutex;
use tokio::{
    io::AsyncRead,
    time::{Instant, sleep_until},
};
use tokio_util::io::ReaderStream;

use crate::{EnvdClient, Error, Result};

const CHUNK: usize = 64 << 10;
/// How long a copy may make no progress: envd may be busy with a large file or a slow disk.
const STALL_LIMIT: Duration = Duration::from_mins(2);
/// After its last byte went in, envd still puts the files in place.
const PLACE_LIMIT: Duration = Duration::from_mins(10);

/// One COPY, its fields as on E2B's wire.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopyRequest {
    /// A path in the archive, perhaps with a glob. Empty or `.`: everything in it.
    pub src: String,
    /// Relative to `workdir`. With `/` at its end it is a directory.
    pub dest: String,
    /// `user`, `user:group`, or numbers; empty: `user`, unless `keep_owners`.
    pub owner: String,
    /// Octal, for everything that is copied; empty: as in the archive.
    pub mode: String,
    pub workdir: String,
    /// The current user of the build; empty: root.
    pub user: String,
    /// Without an `owner`, the archive's own owners stay, as in Docker's `COPY --from`.
    pub keep_owners: bool,
}

impl CopyRequest {
    fn query(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in [
            ("src", &self.src),
            ("dest", &self.dest),
            ("owner", &self.owner),
            ("mode", &self.mode),
            ("workdir", &self.workdir),
            ("user", &self.user),
        ] {
            query.append_pair(name, value);
        }
        if self.keep_owners {
            query.append_pair("keep_owners", "true");
        }
        query.finish()
    }
}

impl EnvdClient {
    /// Unpacks a tar (plain or gzip) inside and puts what `copy` names in its place. What goes wrong
    /// there is [`Error::Refused`] with a text for the user; nothing of the scratch stays, though
    /// what was put in place before a failure does. A dropped future stops the copy.
    pub async fn copy_in(
        &self,
        copy: &CopyRequest,
        archive: impl AsyncRead + Send + Unpin + 'static,
    ) -> Result<()> {
        let what = "files were copied in";
        let progress = Arc::new(Mutex::new(Progress::started()));
        let upload = Upload {
            archive: ReaderStream::with_capacity(archive, CHUNK),
            progress: Arc::clone(&progress),
        };
        let path = format!("/soulbox/copy?{}", copy.query());
        let request = self.control(Method::POST, &path)?;
        let body = StreamBody::new(upload.map_ok(Frame::data)).boxed_unsync();
        let exchange = async {
            let exchange = self.call(request, body, what, Duration::MAX).await?;
            exchange.whole(what).await.map(drop)
        };
        let result = tokio::select! {
            result = exchange => result,
            limit = stalled(&progress) => Err(Error::TooSlow { what: "copying files in", limit }),
        };
        match progress.lock().failed.take() {
            Some(error) => Err(Error::Archive(error)),
            None => result,
        }
    }
}

#[derive(Debug)]
struct Progress {
    at: Instant,
    sent_all: bool,
    failed: Option<io::Error>,
}

impl Progress {
    fn started() -> Self {
        Self {
            at: Instant::now(),
            sent_all: false,
            failed: None,
        }
    }

    fn limit(&self) -> Duration {
        if self.sent_all {
            PLACE_LIMIT
        } else {
            STALL_LIMIT
        }
    }
}

/// Resolves when nothing has moved for too long.
async fn stalled(progress: &Mutex<Progress>) -> Duration {
    loop {
        let (due, limit) = {
            let progress = progress.lock();
            let limit = progress.limit();
            (progress.at + limit, limit)
        };
        if due <= Instant::now() {
            return limit;
        }
        sleep_until(due).await;
    }
}

/// The archive on its way, watched.
struct Upload<R> {
    archive: ReaderStream<R>,
    progress: Arc<Mutex<Progress>>,
}

impl<R: AsyncRead + Unpin> Stream for Upload<R> {
    type Item = io::Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.archive).poll_next(cx);
        let Poll::Ready(item) = polled else {
            return Poll::Pending;
        };
        let mut progress = this.progress.lock();
        progress.at = Instant::now();
        Poll::Ready(match item {
            None => {
                progress.sent_all = true;
                None
            }
            Some(Ok(chunk)) => Some(Ok(chunk)),
            Some(Err(error)) => {
                // hyper cuts the connection, which envd takes as a cut archive.
                let kind = error.kind();
                progress.failed = Some(error);
                Some(Err(kind.into()))
            }
        })
    }
}
