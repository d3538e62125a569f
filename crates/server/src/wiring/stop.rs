//! A server that is told to stop while it starts, and tells how far it is.

use tokio_util::sync::CancellationToken;

use crate::ServiceManager;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Told<'a> {
    pub(crate) manager: &'a ServiceManager,
    pub(crate) stop: &'a CancellationToken,
}

/// Not a failure: the start was not to be finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("stopped before the start was complete")]
pub(crate) struct Stopped;

/// Asked between steps. None is dropped half-way: much of it is done by threads, which would go on
/// to write into a folder that somebody is about to remove.
pub(crate) fn go_on(stop: &CancellationToken) -> Result<(), Stopped> {
    if stop.is_cancelled() {
        return Err(Stopped);
    }
    Ok(())
}
