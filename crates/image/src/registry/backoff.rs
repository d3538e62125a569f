//! Retries with backoff.

use std::time::Duration;

use crate::{Error, Result, config::Timeouts};

const TRIES: u32 = 5;
/// For a server that nobody reached yet: a name or a line that is missing stays missing, and
/// somebody waits to be told so.
const TRIES_TO_REACH: u32 = 2;

#[derive(Debug)]
pub(crate) struct Backoff {
    timeouts: Timeouts,
    failed: u32,
    reached: bool,
}

impl Backoff {
    /// For the first that is asked of a server.
    pub(crate) fn first(timeouts: Timeouts) -> Self {
        Self {
            timeouts,
            failed: 0,
            reached: false,
        }
    }

    /// For what is asked of one that answered before.
    pub(crate) fn new(timeouts: Timeouts) -> Self {
        Self {
            reached: true,
            ..Self::first(timeouts)
        }
    }

    /// Something worked: the next failure is the first again.
    pub(crate) fn reset(&mut self) {
        self.failed = 0;
    }

    /// Waits for the next try, or gives the error back when there is none.
    pub(crate) async fn wait(&mut self, error: Error) -> Result<()> {
        self.failed += 1;
        let unreachable = error.is_unreachable();
        self.reached |= !unreachable;
        let tries = if unreachable && !self.reached {
            TRIES_TO_REACH
        } else {
            TRIES
        };
        if self.failed >= tries || !error.is_transient() {
            return Err(error);
        }
        let asked = match &error {
            Error::RateLimited {
                retry_after: Some(seconds),
                ..
            } => Duration::from_secs(*seconds),
            _ => Duration::ZERO,
        };
        if asked > self.timeouts.longest_wait {
            return Err(error);
        }
        let usual = self.timeouts.retry * 2_u32.pow(self.failed - 1);
        tokio::time::sleep(asked.max(usual)).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreachable() -> Error {
        Error::NoPublicAddress {
            host: "registry.test".to_owned(),
        }
    }

    async fn tries(mut backoff: Backoff, error: fn() -> Error) -> u32 {
        let mut tries = 1;
        while backoff.wait(error()).await.is_ok() {
            tries += 1;
        }
        tries
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_was_never_reached_is_given_up_soon() {
        let started = tokio::time::Instant::now();
        let first = Backoff::first(Timeouts::default());
        assert_eq!(tries(first, unreachable).await, TRIES_TO_REACH);
        assert!(started.elapsed() <= Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_answered_before_may_come_back() {
        let later = Backoff::new(Timeouts::default());
        assert_eq!(tries(later, unreachable).await, TRIES);
        let mut answered = Backoff::first(Timeouts::default());
        let busy = Error::Http {
            host: "registry.test".to_owned(),
            cause: "cut".to_owned(),
        };
        answered.wait(busy).await.unwrap();
        assert_eq!(tries(answered, unreachable).await, TRIES - 1);
    }

    #[test]
    fn whoever_cannot_be_reached_the_message_says_what_else_there_is() {
        let errors = [
            unreachable(),
            Error::Connect {
                host: "registry.test".to_owned(),
                cause: "timed out".to_owned(),
            },
        ];
        for error in errors {
            let told = error.to_string();
            assert!(told.contains("registry.test"), "{told}");
            assert!(told.contains("FROM template://base"), "{told}");
            assert!(told.contains("registry-mirror"), "{told}");
        }
    }
}
