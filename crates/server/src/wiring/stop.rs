//! A server that is told to stop while it starts.

use tokio_util::sync::CancellationToken;

/// Not a failure: the start was not to be finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("stopped before the start was complete")]
pub(crate) struct Stopped;

/// For what leaves nothing when it is dropped half-way.
pub(crate) async fn unless_stopped<T>(
    stop: &CancellationToken,
    step: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let done = stop.run_until_cancelled(step).await;
    done.unwrap_or_else(|| Err(Stopped.into()))
}

/// Between steps that have to be done as a whole.
pub(super) fn go_on(stop: &CancellationToken) -> Result<(), Stopped> {
    if stop.is_cancelled() {
        return Err(Stopped);
    }
    Ok(())
}
