//! Counts, bounds and hashes the bytes of an unpacked layer.

use std::{
    io::{self, Read},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::digest::{Digest, Hasher};

/// How much a layer may become.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) bytes: u64,
    /// Times its compressed size, once it is larger than `ratio_from`: text compresses well, but
    /// a gigabyte of it does not come from a few megabytes.
    pub(crate) ratio: u64,
    pub(crate) ratio_from: u64,
    pub(crate) entries: u64,
    /// Bytes that stay free on the disk.
    pub(crate) min_free: u64,
}

impl Bounds {
    pub(crate) fn new(bytes: u64, min_free: u64) -> Self {
        Self {
            bytes,
            ratio: 200,
            ratio_from: 1 << 30,
            entries: 2_000_000,
            min_free,
        }
    }
}

/// Why reading ended before the end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Stop {
    #[error("more than {0} bytes")]
    TooLarge(u64),
    #[error("more than {0} times the compressed size")]
    Bomb(u64),
    #[error("given up")]
    GivenUp,
}

pub(crate) struct Meter<R> {
    inner: R,
    hasher: Hasher,
    read: u64,
    compressed: u64,
    bounds: Bounds,
    give_up: Arc<AtomicBool>,
}

impl<R: Read> Meter<R> {
    pub(crate) fn new(inner: R, compressed: u64, bounds: Bounds, give_up: Arc<AtomicBool>) -> Self {
        Self {
            inner,
            hasher: Hasher::new(),
            read: 0,
            compressed,
            bounds,
            give_up,
        }
    }

    /// The digest of everything, and how much it was.
    pub(crate) fn finish(mut self) -> io::Result<(Digest, u64)> {
        let mut rest = vec![0; 64 << 10];
        while self.read(&mut rest)? > 0 {}
        Ok((self.hasher.finish(), self.read))
    }
}

impl<R: Read> Read for Meter<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.give_up.load(Ordering::Relaxed) {
            return Err(io::Error::other(Stop::GivenUp));
        }
        let count = self.inner.read(buffer)?;
        self.hasher.update(buffer.get(..count).unwrap_or_default());
        self.read = self.read.saturating_add(count as u64);
        let bounds = &self.bounds;
        if self.read > bounds.bytes {
            return Err(io::Error::other(Stop::TooLarge(bounds.bytes)));
        }
        let natural = self.compressed.saturating_mul(bounds.ratio);
        if self.read > bounds.ratio_from.max(natural) {
            return Err(io::Error::other(Stop::Bomb(bounds.ratio)));
        }
        Ok(count)
    }
}
