//! Work that waits for the kernel, off the runtime's threads.

use std::io;

use soulbox_runtime::{Error, Result};
use tokio::task::spawn_blocking;

pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::io("a task failed", io::Error::other(error))),
    }
}
