//! Something that may happen a thousand times a second is said once in a while.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

const EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub struct Seldom {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    said: Option<Instant>,
    unsaid: u64,
}

impl Seldom {
    /// When it is to be said now: how often it happened since it was last said.
    pub fn now(&self) -> Option<u64> {
        let mut state = self.state.lock();
        if state.said.is_some_and(|said| said.elapsed() < EVERY) {
            state.unsaid += 1;
            return None;
        }
        state.said = Some(Instant::now());
        Some(std::mem::take(&mut state.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_goes_on_is_said_once_per_period_with_how_often_it_happened() {
        let seldom = Seldom::default();
        assert_eq!(seldom.now(), Some(0));
        assert_eq!(seldom.now(), None);
        assert_eq!(seldom.now(), None);
        tokio::time::advance(EVERY).await;
        assert_eq!(seldom.now(), Some(2));
    }
}
