//! How far a pull is.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Called at most a few times a second.
pub trait Progress: Send + Sync {
    /// One thing that happened, for a log.
    fn line(&self, text: &str);
    /// Of all layers together, as they are on the wire.
    fn bytes(&self, done: u64, total: u64);
}

/// Reports nothing.
impl Progress for () {
    fn line(&self, _: &str) {}
    fn bytes(&self, _: u64, _: u64) {}
}

const EVERY: Duration = Duration::from_millis(250);

/// Counted by whoever works, read by who reports.
#[derive(Debug, Default)]
pub(crate) struct ProgressCounter {
    done: AtomicU64,
    total: AtomicU64,
}

impl ProgressCounter {
    pub(crate) fn expect(&self, bytes: u64) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn advance(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A download starts again from its beginning.
    pub(crate) fn take_back(&self, bytes: u64) {
        self.done.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn now(&self) -> (u64, u64) {
        let done = self.done.load(Ordering::Relaxed);
        (done, self.total.load(Ordering::Relaxed))
    }

    /// Reports while `work` is under way, and where it ended.
    pub(crate) async fn report<T>(
        &self,
        progress: &dyn Progress,
        work: impl Future<Output = T>,
    ) -> T {
        let mut last = (0, 0);
        let mut report_change = || {
            let now = self.now();
            if now != last {
                last = now;
                progress.bytes(now.0, now.1);
            }
        };
        let mut ticks = tokio::time::interval(EVERY);
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => {
                    report_change();
                    return done;
                }
                _ = ticks.tick() => report_change(),
            }
        }
    }
}
