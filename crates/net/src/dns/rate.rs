//! A rate limit with a burst (GCRA).
//!
//! Requests above the rate are not refused but delayed. How many may wait is bounded elsewhere
//! ([`super::admission`]).

use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug, Clone, Copy)]
pub(super) struct Rate {
    pub(super) per_second: u32,
    pub(super) at_once: u32,
}

/// The theoretical arrival time: when the client's whole burst is available again.
#[derive(Debug, Clone, Copy)]
pub(super) struct RateState {
    all_free_at: Instant,
}

impl RateState {
    pub(super) fn new(now: Instant) -> Self {
        Self { all_free_at: now }
    }

    /// Whether forgetting it would make no difference.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        self.all_free_at <= now
    }
}

impl Rate {
    /// Takes the next place and returns how long to wait for it.
    pub(super) fn take(self, rate_state: &mut RateState, now: Instant) -> Duration {
        let each = Duration::from_secs(1) / self.per_second;
        rate_state.all_free_at = rate_state.all_free_at.max(now) + each;
        (rate_state.all_free_at - now).saturating_sub(each * self.at_once)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate {
        per_second: 100,
        at_once: 20,
    };

    fn at_once(rate_state: &mut RateState, now: Instant) -> usize {
        let mut count = 0;
        while RATE.take(&mut rate_state.clone(), now).is_zero() {
            RATE.take(rate_state, now);
            count += 1;
        }
        count
    }

    #[test]
    fn a_burst_has_no_wait_and_the_rest_comes_at_the_rate() {
        let now = Instant::now();
        let mut rate_state = RateState::new(now);
        let waits: Vec<_> = (0..120).map(|_| RATE.take(&mut rate_state, now)).collect();
        assert!(waits[..20].iter().all(Duration::is_zero));
        assert_eq!(waits[20], Duration::from_millis(10));
        assert_eq!(waits[119], Duration::from_secs(1), "a hundred in a second");
    }

    #[test]
    fn a_rest_gives_back_what_was_used_and_no_more() {
        let now = Instant::now();
        let mut rate_state = RateState::new(now);
        assert_eq!(at_once(&mut rate_state, now), 20);
        assert_eq!(at_once(&mut rate_state, now + Duration::from_millis(50)), 5);
        let later = now + Duration::from_hours(1);
        assert!(rate_state.is_idle(later));
        assert_eq!(at_once(&mut rate_state, later), 20);
        assert!(!rate_state.is_idle(later));
    }
}
