//! How many builds ended, and how: for operators.

use std::sync::atomic::{AtomicU64, Ordering};

use soulbox_store::{BuildReason, BuildRow};
use soulbox_types::UnixMillis;

use super::scheduler::CANCELLED;

/// Builds of templates since the server started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BuildStats {
    pub running: u64,
    /// In the queue.
    pub waiting: u64,
    pub ready: EndedBuildStats,
    pub failed: EndedBuildStats,
    pub cancelled: EndedBuildStats,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EndedBuildStats {
    pub count: u64,
    /// From their start, with the time in the queue.
    pub millis: u64,
}

#[derive(Debug, Default)]
struct Counter {
    count: AtomicU64,
    millis: AtomicU64,
}

impl Counter {
    fn stats(&self) -> EndedBuildStats {
        EndedBuildStats {
            count: self.count.load(Ordering::Relaxed),
            millis: self.millis.load(Ordering::Relaxed),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct EndedBuilds {
    ready: Counter,
    failed: Counter,
    cancelled: Counter,
}

impl EndedBuilds {
    pub(crate) fn count(&self, build: &BuildRow, reason: Option<&BuildReason>, at: UnixMillis) {
        let counter = match reason {
            None => &self.ready,
            Some(reason) if reason.message == CANCELLED => &self.cancelled,
            Some(_) => &self.failed,
        };
        let begun = build.started_at.unwrap_or(build.created_at);
        counter.count.fetch_add(1, Ordering::Relaxed);
        let millis = at.0.saturating_sub(begun.0);
        counter.millis.fetch_add(millis, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self, running: usize, waiting: usize) -> BuildStats {
        BuildStats {
            running: running as u64,
            waiting: waiting as u64,
            ready: self.ready.stats(),
            failed: self.failed.stats(),
            cancelled: self.cancelled.stats(),
        }
    }
}
