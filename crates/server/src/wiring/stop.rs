//! A stop during the start, and reports of its progress.

use tokio_util::sync::CancellationToken;

use crate::{ServiceManager, start_progress::StartProgress};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Startup<'a> {
    pub(crate) manager: &'a ServiceManager,
    pub(crate) progress: &'a StartProgress,
    pub(crate) stop: &'a CancellationToken,
}

impl Startup<'_> {
    /// What comes next.
    pub(crate) async fn status(&self, what: &str) {
        self.progress.step(what);
        self.manager.status(what).await;
    }
}

/// Not a failure: a stop was requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("stopped before the start was complete")]
pub(crate) struct Stopped;

/// Called between steps. No step is cancelled half-way: much of it runs in threads, which would go on
/// and write into a folder that is about to be removed.
pub(crate) fn check_stop(stop: &CancellationToken) -> Result<(), Stopped> {
    if stop.is_cancelled() {
        return Err(Stopped);
    }
    Ok(())
}
