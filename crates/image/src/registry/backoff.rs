//! Retries with backoff.

use std::time::Duration;

use crate::{Error, Result, config::Timeouts};

const TRIES: u32 = 5;

#[derive(Debug)]
pub(crate) struct Backoff {
    timeouts: Timeouts,
    failed: u32,
}

impl Backoff {
    pub(crate) fn new(timeouts: Timeouts) -> Self {
        Self {
            timeouts,
            failed: 0,
        }
    }

    /// Something worked: the next failure is the first again.
    pub(crate) fn reset(&mut self) {
        self.failed = 0;
    }

    /// Waits for the next try, or gives the error back when there is none.
    pub(crate) async fn wait(&mut self, error: Error) -> Result<()> {
        self.failed += 1;
        if self.failed >= TRIES || !error.is_transient() {
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
