//! When to scan the whole conntrack table. Others than sandboxes may keep it above the half for
//! hours, and then every scan finds nothing to do.

use std::time::Duration;

use tokio::time::Instant;

/// After a walk that found nothing to do, and after many such.
const SHORTEST: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(32);
/// Of what sandboxes may have together: more than that they cannot add unseen.
const UNSEEN: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct ScanSchedule {
    last: Option<EmptyScan>,
}

/// A scan that found all sandboxes within their share.
#[derive(Debug, Clone, Copy)]
struct EmptyScan {
    /// With so many entries in the table sandboxes might have too many.
    alarm: usize,
    pause: Duration,
    at: Instant,
}

impl ScanSchedule {
    /// Whether to look who has the table's `used` entries, of which sandboxes may have `budget`.
    pub(crate) fn is_due(&self, used: usize, budget: usize, now: Instant) -> bool {
        used > budget
            && self
                .last
                .is_none_or(|last| used >= last.alarm || now >= last.at + last.pause)
    }

    /// Sandboxes had so many of them; nothing had to be done.
    pub(crate) fn found_nothing(&mut self, held: usize, used: usize, budget: usize, now: Instant) {
        let pause = match self.last {
            Some(last) if now < last.at + 8 * LONGEST => (last.pause * 2).min(LONGEST),
            _ => SHORTEST,
        };
        // Unless others give up theirs, and then the table is no fuller than it was.
        let room = (budget.saturating_sub(held) / 2).max(budget / UNSEEN);
        self.last = Some(EmptyScan {
            alarm: used + room.max(1),
            pause,
            at: now,
        });
    }

    /// Sandboxes lost what they had too much.
    pub(crate) fn found_excess(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: usize = 131_072;

    /// One look a second; how often the table was walked.
    fn walks(seconds: usize, used: impl Fn(usize) -> usize, held: usize) -> usize {
        let (mut schedule, start) = (ScanSchedule::default(), Instant::now());
        let mut walks = 0;
        for (second, passed) in (0..seconds).zip(0..) {
            let (used, now) = (used(second), start + Duration::from_secs(passed));
            if schedule.is_due(used, BUDGET, now) {
                walks += 1;
                schedule.found_nothing(held, used, BUDGET, now);
            }
        }
        walks
    }

    #[test]
    fn what_others_fill_is_walked_ever_more_rarely() {
        let most = |walks: usize| assert!(walks <= 3600 / 30 + 5, "{walks}");
        most(walks(3600, |_| 200_000, 0));
        // It moves, as tables do, also around the half.
        most(walks(3600, |s| 200_000 + (s * 7919) % 5000, 100));
        most(walks(3600, |s| BUDGET - 4000 + (s * 7919) % 8000, 0));
        // And when sandboxes have nearly all that they may.
        most(walks(3600, |s| 200_000 + (s * 7919) % 5000, BUDGET - 1));
    }

    #[test]
    fn below_the_half_nobody_looks() {
        assert_eq!(walks(3600, |_| BUDGET, 0), 0);
    }

    #[test]
    fn when_the_table_grows_by_what_sandboxes_could_have_too_much_it_is_looked_at_at_once() {
        let (mut schedule, now) = (ScanSchedule::default(), Instant::now());
        for _ in 0..10 {
            schedule.found_nothing(1000, 140_000, BUDGET, now);
        }
        assert!(!schedule.is_due(150_000, BUDGET, now));
        assert!(schedule.is_due(140_000 + BUDGET / 2, BUDGET, now));
        schedule.found_excess();
        assert!(schedule.is_due(140_000, BUDGET, now), "it goes on");
    }
}
