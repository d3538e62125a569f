//! How long a create waits for the first build of a template.
//!
//! Clients do not say how long they wait, with one exception: `Prefer: wait=SECONDS` (RFC 7240). What
//! is told a moment before they would give up is more use to them than their own timeout.

use std::time::Duration;

/// Whatever a client says: a request must not be held without end.
const LONGEST: Duration = Duration::from_mins(10);

/// How long the client of a create has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// It said so.
    Asked(Duration),
    /// It did not say: what is known of its like.
    Usual(Duration),
}

impl Wait {
    /// `operator`: the server's own setting. It holds for clients that say nothing, and is the most
    /// for those that do.
    pub(crate) fn within(self, operator: Option<Duration>) -> Duration {
        match (self, operator) {
            (Self::Asked(wait), Some(most)) => wait.min(most),
            (Self::Usual(_), Some(most)) => most,
            (Self::Asked(wait) | Self::Usual(wait), None) => wait.min(LONGEST),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn who_says_nothing_waits_as_the_operator_says_and_nobody_waits_longer() {
        let (asked, usual) = (Wait::Asked(seconds(300)), Wait::Usual(seconds(57)));
        assert_eq!(asked.within(None), seconds(300));
        assert_eq!(usual.within(None), seconds(57));
        assert_eq!(asked.within(Some(seconds(20))), seconds(20));
        assert_eq!(usual.within(Some(seconds(120))), seconds(120));
        let shorter = Wait::Asked(seconds(0));
        assert_eq!(shorter.within(Some(seconds(20))), seconds(0));
        assert_eq!(
            Wait::Asked(Duration::from_hours(9)).within(None),
            Duration::from_mins(10)
        );
    }
}
