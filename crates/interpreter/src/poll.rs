//! Descriptors in the event loop.

#![expect(
    unsafe_code,
    reason = "tokio asks for a promise about the descriptor's life"
)]

use std::{io, os::fd::OwnedFd};

use tokio::io::unix::AsyncFd;

/// Lets the event loop watch a descriptor.
pub(crate) fn pollable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` always names the same open descriptor until it is dropped, and the
    // `AsyncFd` owns it from here on.
    unsafe { AsyncFd::register(fd) }.map_err(|error| io::Error::other(error.to_string()))
}
