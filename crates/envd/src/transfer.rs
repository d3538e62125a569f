//! Whole trees of files in and out of the sandbox, for the node: the COPY of template builds.
//!
//! Both directions are tars that stream through a small channel between the event loop and a thread
//! of their own, which ends with them: file threads are few and stay free for files. Memory is
//! bounded whatever the archive or the tree holds.
//!
//! # Layout
//! - [`copy`]: `POST /soulbox/copy`; [`request`]: what it asks for; [`owner`]: who gets the files
//! - [`upload_reader`]: the upload as the thread reads it; [`archive`]: tar; [`extract`]: into a [`scratch`]
//!   directory; [`place`]: from there to where they belong
//! - [`tree`]: `GET /soulbox/tree`; [`pack`]: files into a tar
//! - [`metadata`], [`attributes`]: owners, modes, times and extended attributes

mod archive;
mod attributes;
mod copy;
mod extract;
mod metadata;
mod owner;
mod pack;
mod place;
mod request;
#[cfg(test)]
mod sample;
mod scratch;
mod tree;
mod upload_reader;

use std::{io, sync::Arc, thread};

use http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

pub(crate) use self::{copy::handle as copy, tree::handle as tree};
use crate::{http::reply::Failure, paths};

/// How many run at once; more of them wait.
const AT_ONCE: usize = 8;
/// Enough for the deepest tree that is taken ([`MAX_DEPTH`]).
const STACK: usize = 2 << 20;
/// Of directories. Every level that a walk is in costs descriptors.
const MAX_DEPTH: usize = 256;

#[derive(Clone)]
pub(crate) struct Transfers(Arc<Semaphore>);

impl Default for Transfers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

/// Whether the client has disconnected.
type Abandoned<'a> = &'a dyn Fn() -> bool;

impl Transfers {
    /// Runs blocking work in a thread of its own. Dropping the receiver is what `Abandoned` reports.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(Abandoned<'_>) -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, Failure> {
        let permit = self.permit().await?;
        let (sender, receiver) = oneshot::channel();
        thread::Builder::new()
            .name("transfer".to_owned())
            .stack_size(STACK)
            .spawn(move || {
                let _permit = permit;
                let result = work(&|| sender.is_closed());
                let _gone = sender.send(result);
            })
            .map_err(|e| Failure::io("starting a thread", &e))?;
        Ok(receiver)
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit, Failure> {
        let closed = |_| Failure::new(StatusCode::SERVICE_UNAVAILABLE, "envd is ending");
        Arc::clone(&self.0).acquire_owned().await.map_err(closed)
    }
}

#[derive(Debug, thiserror::Error)]
enum Error {
    /// The archive is not one, or must not be followed.
    #[error("failed to extract files in sandbox: {0}")]
    Archive(String),
    #[error("failed to extract files in sandbox: {what}: {source}")]
    Extract { what: String, source: io::Error },
    /// What was asked for cannot be done.
    #[error("failed to move files in sandbox: {0}")]
    Move(String),
    #[error("failed to move files in sandbox: {what}: {source}")]
    Place { what: String, source: io::Error },
    #[error("whoever asked is gone")]
    Abandoned,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::Archive(_) | Error::Move(_) | Error::Abandoned => StatusCode::BAD_REQUEST,
            Error::Extract { source, .. } | Error::Place { source, .. } => {
                if paths::is_out_of_space(source) {
                    StatusCode::INSUFFICIENT_STORAGE
                } else {
                    StatusCode::INTERNAL_SERVER_ERROR
                }
            }
        };
        Self::new(status, error.to_string())
    }
}

/// Untrusted names, for messages.
fn show(name: &[u8]) -> String {
    String::from_utf8_lossy(name.get(..name.len().min(300)).unwrap_or_default()).into_owned()
}
