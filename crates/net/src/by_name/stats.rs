use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Connections by name since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ByNameStats {
    /// Now.
    pub open: u64,
    pub passed: u64,
    pub refused: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    passed: AtomicU64,
    ended: AtomicU64,
    refused: AtomicU64,
}

impl Counters {
    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// Counts one that is passed on, for as long as the value is kept.
    pub(super) fn pass(&self) -> Passing<'_> {
        self.passed.fetch_add(1, Relaxed);
        Passing(self)
    }

    pub(crate) fn stats(&self) -> ByNameStats {
        // In this order: never more ended than passed.
        let ended = self.ended.load(Relaxed);
        let passed = self.passed.load(Relaxed);
        ByNameStats {
            open: passed.saturating_sub(ended),
            passed,
            refused: self.refused.load(Relaxed),
        }
    }
}

pub(super) struct Passing<'a>(&'a Counters);

impl Drop for Passing<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Relaxed);
    }
}
