//! Counters of the proxy, for the metrics page.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Debug, Default)]
pub struct Counters {
    pub(crate) requests: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) streams_refused: AtomicU64,
    pub(crate) cut: AtomicU64,
    pub(crate) slowed: AtomicU64,
    pub(crate) open: AtomicU64,
    pub(crate) to_sandboxes: AtomicU64,
    pub(crate) from_sandboxes: AtomicU64,
}

/// All counters at (nearly) one moment.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct CountersSnapshot {
    /// Requests that reached the proxy.
    pub requests: u64,
    /// Of these, refused by the proxy itself.
    pub refused: u64,
    /// Of these, refused since too many streams were open.
    pub streams_refused: u64,
    /// Streams aborted because the sandbox or its server broke off.
    pub cut: u64,
    /// How often a body in tiny chunks was slowed down.
    pub slowed: u64,
    /// Streams that are open now.
    pub open: u64,
    /// Bytes written to ports inside.
    pub bytes_to_sandboxes: u64,
    /// Bytes read from ports inside.
    pub bytes_from_sandboxes: u64,
}

impl Counters {
    pub fn snapshot(&self) -> CountersSnapshot {
        CountersSnapshot {
            requests: self.requests.load(Relaxed),
            refused: self.refused.load(Relaxed),
            streams_refused: self.streams_refused.load(Relaxed),
            cut: self.cut.load(Relaxed),
            slowed: self.slowed.load(Relaxed),
            open: self.open.load(Relaxed),
            bytes_to_sandboxes: self.to_sandboxes.load(Relaxed),
            bytes_from_sandboxes: self.from_sandboxes.load(Relaxed),
        }
    }
}
