//! So many in a second, and a number at once for whoever had few before.
//!
//! Whoever wants more is not refused but told when its turn comes. How many may wait for theirs is
//! bounded elsewhere ([`super::admission`]).

use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug, Clone, Copy)]
pub(super) struct Rate {
    pub(super) per_second: u32,
    pub(super) at_once: u32,
}

/// Since when, or until when, somebody has used up nothing of its rate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turns {
    all_free_at: Instant,
}

impl Turns {
    pub(super) fn new(now: Instant) -> Self {
        Self { all_free_at: now }
    }

    /// Whether forgetting it would make no difference.
    pub(super) fn are_all_free(&self, now: Instant) -> bool {
        self.all_free_at <= now
    }
}

impl Rate {
    /// Takes the next turn, which comes after so long.
    pub(super) fn take(self, turns: &mut Turns, now: Instant) -> Duration {
        let each = Duration::from_secs(1) / self.per_second;
        turns.all_free_at = turns.all_free_at.max(now) + each;
        (turns.all_free_at - now).saturating_sub(each * self.at_once)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate {
        per_second: 100,
        at_once: 20,
    };

    fn at_once(turns: &mut Turns, now: Instant) -> usize {
        let mut count = 0;
        while RATE.take(&mut turns.clone(), now).is_zero() {
            RATE.take(turns, now);
            count += 1;
        }
        count
    }

    #[test]
    fn a_burst_has_no_wait_and_the_rest_comes_at_the_rate() {
        let now = Instant::now();
        let mut turns = Turns::new(now);
        let waits: Vec<_> = (0..120).map(|_| RATE.take(&mut turns, now)).collect();
        assert!(waits[..20].iter().all(Duration::is_zero));
        assert_eq!(waits[20], Duration::from_millis(10));
        assert_eq!(waits[119], Duration::from_secs(1), "a hundred in a second");
    }

    #[test]
    fn a_rest_gives_back_what_was_used_and_no_more() {
        let now = Instant::now();
        let mut turns = Turns::new(now);
        assert_eq!(at_once(&mut turns, now), 20);
        assert_eq!(at_once(&mut turns, now + Duration::from_millis(50)), 5);
        let later = now + Duration::from_hours(1);
        assert!(turns.are_all_free(later));
        assert_eq!(at_once(&mut turns, later), 20);
        assert!(!turns.are_all_free(later));
    }
}
