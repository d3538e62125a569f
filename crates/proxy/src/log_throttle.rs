//! Logs an event that may happen a thousand times a second only once per interval.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

const INTERVAL: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub struct LogThrottle {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    logged: Option<Instant>,
    suppressed: u64,
}

impl LogThrottle {
    /// When the event is to be logged now: how many were suppressed since the last one.
    pub fn should_log(&self) -> Option<u64> {
        let mut state = self.state.lock();
        if state
            .logged
            .is_some_and(|logged| logged.elapsed() < INTERVAL)
        {
            state.suppressed += 1;
            return None;
        }
        state.logged = Some(Instant::now());
        Some(std::mem::take(&mut state.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_repeated_event_is_logged_once_per_interval_with_how_many_were_suppressed() {
        let throttle = LogThrottle::default();
        assert_eq!(throttle.should_log(), Some(0));
        assert_eq!(throttle.should_log(), None);
        assert_eq!(throttle.should_log(), None);
        tokio::time::advance(INTERVAL).await;
        assert_eq!(throttle.should_log(), Some(2));
    }
}
