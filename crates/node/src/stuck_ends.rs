//! Ends that the kernel does not finish. A process that was killed is gone within moments, unless it
//! is stuck in the kernel; then nothing that a server does ends it. A machine on which several are
//! stuck is not working, and every sandbox that is made there adds one more that cannot be ended, with
//! its memory, its network and its disk. So none is made, and none is woken, until they are gone.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use soulbox_runtime::{Error, Result};
use tokio::time::Instant;

/// Longer than the end of a sandbox takes on a machine that works, however busy it is. The runtime
/// itself gives up an attempt before that; one that still writes to its disk begins anew then, or
/// sandboxes with much to write would keep everybody from making new ones.
pub(crate) const END_LIMIT: Duration = Duration::from_secs(30);
/// An end that comes while its sandbox is being made waits for that first. The runtime bounds it to
/// less.
pub(crate) const START_LIMIT: Duration = Duration::from_mins(1);
/// With fewer than these it may be a matter of single sandboxes, such as a disk that hangs.
const MOST: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct StuckEnds {
    watched: Mutex<Watched>,
}

#[derive(Debug, Default)]
struct Watched {
    next: u64,
    waits: HashMap<u64, Wait>,
}

#[derive(Debug, Clone, Copy)]
struct Wait {
    since: Instant,
    limit: Duration,
}

impl StuckEnds {
    /// An end waits for the kernel while the result lives. It counts as stuck after `limit`.
    pub(crate) fn watch(&self, limit: Duration) -> WatchedEnd<'_> {
        let mut watched = self.watched.lock();
        let key = watched.next;
        watched.next += 1;
        let since = Instant::now();
        watched.waits.insert(key, Wait { since, limit });
        WatchedEnd { ends: self, key }
    }

    /// How many wait for too long.
    pub(crate) fn count(&self) -> u64 {
        let now = Instant::now();
        let watched = self.watched.lock();
        let stuck = watched
            .waits
            .values()
            .filter(|wait| now.saturating_duration_since(wait.since) >= wait.limit);
        stuck.count() as u64
    }

    /// Whether sandboxes may be made and woken.
    pub(crate) fn check(&self) -> Result<()> {
        let now = Instant::now();
        let watched = self.watched.lock();
        let waits = watched.waits.values();
        let stuck = waits
            .map(|wait| (now.saturating_duration_since(wait.since), wait.limit))
            .filter(|(waited, limit)| waited >= limit)
            .map(|(waited, _)| waited);
        let (ends, longest) = stuck.fold((0, Duration::ZERO), |(ends, longest), waited| {
            (ends + 1, longest.max(waited))
        });
        if ends < MOST {
            return Ok(());
        }
        Err(Error::KernelStuck { ends, longest })
    }
}

#[derive(Debug)]
#[must_use = "it is watched while this lives"]
pub(crate) struct WatchedEnd<'a> {
    ends: &'a StuckEnds,
    key: u64,
}

impl Drop for WatchedEnd<'_> {
    fn drop(&mut self) {
        self.ends.watched.lock().waits.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn four_that_wait_for_too_long_are_too_many_until_one_is_gone() {
        let ends = StuckEnds::default();
        let mut waiting: Vec<_> = (0..4).map(|_| ends.watch(END_LIMIT)).collect();
        assert!(ends.check().is_ok(), "none waits for long");
        tokio::time::advance(Duration::from_millis(29_999)).await;
        assert!(ends.check().is_ok(), "not yet");
        tokio::time::advance(Duration::from_millis(1)).await;
        let Err(Error::KernelStuck { ends: 4, longest }) = ends.check() else {
            panic!("{:?}", ends.check());
        };
        assert_eq!(longest, END_LIMIT);
        drop(waiting.pop());
        assert!(ends.check().is_ok(), "three may have reasons of their own");
        drop(waiting);
        assert!(ends.watched.lock().waits.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn many_that_take_their_time_are_no_reason() {
        let ends = StuckEnds::default();
        for _ in 0..10 {
            let busy: Vec<_> = (0..1000).map(|_| ends.watch(END_LIMIT)).collect();
            tokio::time::advance(END_LIMIT / 2).await;
            assert!(ends.check().is_ok());
            drop(busy);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_has_its_own_limit() {
        let ends = StuckEnds::default();
        let _starting: Vec<_> = (0..4).map(|_| ends.watch(START_LIMIT)).collect();
        tokio::time::advance(Duration::from_secs(59)).await;
        assert!(ends.check().is_ok());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(ends.check().is_err());
    }
}
