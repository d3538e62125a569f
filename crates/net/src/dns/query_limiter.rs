//! Limits DNS queries per sandbox and in total: one sandbox must neither keep this server and the
//! host's resolver busy nor use up the rate of the others.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::rate::{Rate, RateState};

/// An install or a crawler asks for some hundred names a second, each for IPv4 and IPv6.
const EACH: Rate = Rate {
    per_second: 1000,
    at_once: 2000,
};
/// Some hundredths of a core each thousand.
const ALL: Rate = Rate {
    per_second: 4000,
    at_once: 8000,
};
/// Beyond this many, those that have asked nothing lately are forgotten.
const REMEMBERED: usize = 1024;
const BETWEEN_WARNINGS: Duration = Duration::from_mins(1);

/// How many questions there were since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NameStats {
    /// Passed on.
    pub asked: u64,
    /// Of these, those that were delayed.
    pub slowed: u64,
    /// Left without an answer: too many of one sandbox, or of all, were under way.
    pub dropped: u64,
}

#[derive(Debug)]
pub(crate) struct QueryLimiter {
    state: Mutex<State>,
    asked: AtomicU64,
    slowed: AtomicU64,
    dropped: AtomicU64,
}

#[derive(Debug)]
struct State {
    all: RateState,
    each: HashMap<Ipv4Addr, RateState>,
    warned: Option<Instant>,
}

impl QueryLimiter {
    pub(crate) fn new() -> Arc<Self> {
        let state = State {
            all: RateState::new(Instant::now()),
            each: HashMap::new(),
            warned: None,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            asked: AtomicU64::new(0),
            slowed: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        })
    }

    /// Returns when this one may be passed on.
    pub(super) async fn throttle(&self, source: Ipv4Addr) {
        let wait = self.take(source);
        self.asked.fetch_add(1, Relaxed);
        if !wait.is_zero() {
            self.slowed.fetch_add(1, Relaxed);
            sleep(wait).await;
        }
    }

    fn take(&self, source: Ipv4Addr) -> Duration {
        let (mut state, now) = (self.state.lock(), Instant::now());
        if state.each.len() >= REMEMBERED {
            state.each.retain(|_, rate_state| !rate_state.is_idle(now));
        }
        let own = state
            .each
            .entry(source)
            .or_insert_with(|| RateState::new(now));
        let own = EACH.take(own, now);
        own.max(ALL.take(&mut state.all, now))
    }

    pub(super) fn dropped(&self, source: Ipv4Addr) {
        let dropped = self.dropped.fetch_add(1, Relaxed) + 1;
        let (mut state, now) = (self.state.lock(), Instant::now());
        if state
            .warned
            .is_some_and(|last| now.duration_since(last) < BETWEEN_WARNINGS)
        {
            return;
        }
        state.warned = Some(now);
        drop(state);
        tracing::warn!(
            %source,
            dropped,
            "a sandbox asks for more names than it may at a time; questions stay without an answer"
        );
    }

    pub(crate) fn stats(&self) -> NameStats {
        NameStats {
            asked: self.asked.load(Relaxed),
            slowed: self.slowed.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(last: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 0, last)
    }

    #[tokio::test(start_paused = true)]
    async fn an_install_is_not_slowed_and_a_flood_comes_at_the_rate() {
        let limiter = QueryLimiter::new();
        let started = Instant::now();
        for _ in 0..EACH.at_once {
            limiter.throttle(sandbox(1)).await;
        }
        assert!(started.elapsed().is_zero());
        // Some hundred names a second, twice each, for a minute.
        for _ in 0..60 {
            tokio::time::advance(Duration::from_secs(1)).await;
            let started = Instant::now();
            for _ in 0..800 {
                limiter.throttle(sandbox(2)).await;
            }
            assert!(started.elapsed().is_zero());
        }
        assert_eq!(limiter.stats().slowed, 0);
        let started = Instant::now();
        for _ in 0..EACH.at_once + 10 * EACH.per_second {
            limiter.throttle(sandbox(3)).await;
        }
        let ten_seconds = Duration::from_secs(9)..Duration::from_secs(12);
        assert!(ten_seconds.contains(&started.elapsed()), "{started:?}");
        assert!(limiter.stats().slowed >= u64::from(9 * EACH.per_second));
    }

    #[tokio::test(start_paused = true)]
    async fn all_together_have_a_rate_too_and_a_new_one_waits_little() {
        let limiter = QueryLimiter::new();
        let started = Instant::now();
        // As many as may be under way at a time, of many.
        let many = |limiter: &Arc<QueryLimiter>| {
            let each = (0..16_u8).map(|last| {
                let limiter = Arc::clone(limiter);
                tokio::spawn(async move {
                    for _ in 0..EACH.at_once {
                        limiter.throttle(sandbox(last)).await;
                    }
                })
            });
            each.collect::<Vec<_>>()
        };
        let hogs = many(&limiter);
        tokio::time::advance(Duration::from_millis(10)).await;
        let asked = Instant::now();
        limiter.throttle(sandbox(99)).await;
        assert!(asked.elapsed() < Duration::from_secs(1), "{asked:?}");
        for hog in hogs {
            hog.await.unwrap();
        }
        let at_least = (16 * EACH.at_once - ALL.at_once) / ALL.per_second;
        assert!(started.elapsed() >= Duration::from_secs(u64::from(at_least) - 1));
    }

    #[test]
    fn those_who_ask_no_more_are_forgotten() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let limiter = QueryLimiter::new();
            for number in 0..100_000_u32 {
                limiter.throttle(Ipv4Addr::from(number)).await;
                tokio::time::advance(Duration::from_millis(1)).await;
            }
            assert!(limiter.state.lock().each.len() <= REMEMBERED);
        });
    }
}
