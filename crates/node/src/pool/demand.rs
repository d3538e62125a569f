//! How many sandboxes of one kind are worth keeping ready.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// As many as were asked for in this time.
const WINDOW: Duration = Duration::from_mins(1);
/// One alone is no pattern.
const PATTERN: usize = 2;
/// More than any pool holds.
const REMEMBERED: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Demand {
    recent: VecDeque<Instant>,
    /// Until then, one is kept: who asks again may take a while to.
    linger_until: Option<Instant>,
}

impl Demand {
    pub(super) fn note(&mut self, now: Instant, idle_for: Duration) {
        self.recent.push_back(now);
        if self.recent.len() > REMEMBERED {
            self.recent.pop_front();
        }
        self.expire(now);
        if self.recent.len() >= PATTERN {
            self.linger_until = now.checked_add(idle_for);
        }
    }

    pub(super) fn target(&mut self, now: Instant, most: usize) -> usize {
        self.expire(now);
        let asked = match self.recent.len() {
            asked if asked >= PATTERN => asked,
            _ => usize::from(self.linger_until.is_some_and(|until| now < until)),
        };
        asked.min(most)
    }

    /// Nothing is left to remember.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.recent.is_empty() && self.linger_until.is_none_or(|until| now >= until)
    }

    fn expire(&mut self, now: Instant) {
        while self
            .recent
            .front()
            .is_some_and(|at| now.duration_since(*at) > WINDOW)
        {
            self.recent.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_mins(5);

    #[test]
    fn one_request_is_no_pattern_and_two_are() {
        let (mut demand, start) = (Demand::default(), Instant::now());
        demand.note(start, IDLE);
        assert_eq!(demand.target(start, 4), 0);
        demand.note(start + Duration::from_secs(30), IDLE);
        assert_eq!(demand.target(start + Duration::from_secs(30), 4), 2);
    }

    #[test]
    fn it_grows_with_demand_to_its_bound_and_ends_without() {
        let (mut demand, start) = (Demand::default(), Instant::now());
        for _ in 0..1000 {
            demand.note(start, IDLE);
        }
        assert_eq!(demand.target(start, 4), 4);
        let later = start + Duration::from_mins(2);
        assert_eq!(demand.target(later, 4), 1, "one lingers");
        assert!(!demand.is_over(later));
        let much_later = start + IDLE;
        assert_eq!(demand.target(much_later, 4), 0);
        assert!(demand.is_over(much_later));
    }
}
