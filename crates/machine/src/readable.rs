//! Waiting until a descriptor can be read.
#![expect(unsafe_code, reason = "tokio asks for a promise about the descriptor")]

use std::{io, os::fd::OwnedFd, sync::Arc};

use tokio::io::unix::AsyncFd;

pub(crate) async fn readable(descriptor: Arc<OwnedFd>) -> io::Result<()> {
    // SAFETY: an Arc<OwnedFd> names the same open file for as long as the registration holds it.
    let registered = unsafe { AsyncFd::register(descriptor) }?;
    registered.readable().await.map(drop)
}
