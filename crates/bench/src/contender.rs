//! A contender: one implementation of what is measured, timed round by round.

use std::{error::Error as StdError, time::Duration};

use async_trait::async_trait;
use soulbox_types::Chain;

use crate::Samples;

/// Rounds that fill caches and are not counted.
pub const WARM_UP: usize = 3;

/// Why a round could not be measured, or a contender is not available.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub String);

impl Failure {
    pub fn new(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }

    /// With everything that caused it.
    pub fn caused(error: &(dyn StdError + 'static)) -> Self {
        Self::new(Chain(error))
    }
}

impl From<soulbox_client::Error> for Failure {
    fn from(error: soulbox_client::Error) -> Self {
        Self::caused(&error)
    }
}

/// One implementation of what a suite measures, such as `docker run` for 'from nothing to the first
/// output'.
#[async_trait]
pub trait Contender: Send {
    /// As in the tables: `soulbox, warm`, `docker run`.
    fn name(&self) -> &str;

    /// What exactly is timed, in a sentence.
    fn method(&self) -> &str;

    /// Does it once and says how long the measured part took. What has to be made before and
    /// removed after is done here too, outside the measured time.
    async fn round(&mut self) -> Result<Duration, Failure>;
}

/// Rounds of the contenders alternate, so that a slow moment of the machine affects all of them. A
/// failed round is counted, not dropped; a contender that fails again and again is given up.
pub async fn alternate(contenders: &mut [Box<dyn Contender>], rounds: usize) -> Vec<Samples> {
    alternate_with_progress(contenders, rounds, WARM_UP, |_| {}).await
}

/// As [`alternate`], and reports how many rounds are done.
pub async fn alternate_with_progress(
    contenders: &mut [Box<dyn Contender>],
    rounds: usize,
    warm_up: usize,
    mut done: impl FnMut(usize),
) -> Vec<Samples> {
    let mut all: Vec<Samples> = contenders.iter().map(|_| Samples::default()).collect();
    for round in 0..rounds + warm_up {
        done(round);
        for (contender, samples) in contenders.iter_mut().zip(&mut all) {
            if samples.is_given_up() {
                continue;
            }
            match (contender.round().await, round < warm_up) {
                (Ok(_), true) => {}
                (Ok(took), false) => samples.add(took),
                (Err(failure), warming) => samples.failed(&failure, warming),
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes as many milliseconds as its rounds are old, and fails in the given ones.
    struct Counting {
        round: u64,
        fails: fn(u64) -> bool,
    }

    #[async_trait]
    impl Contender for Counting {
        fn name(&self) -> &'static str {
            "counting"
        }

        fn method(&self) -> &'static str {
            ""
        }

        async fn round(&mut self) -> Result<Duration, Failure> {
            self.round += 1;
            if (self.fails)(self.round) {
                return Err(Failure::new(format!("round {}", self.round)));
            }
            Ok(Duration::from_millis(self.round))
        }
    }

    async fn alternated(fails: fn(u64) -> bool) -> Samples {
        let mut contenders: Vec<Box<dyn Contender>> = vec![Box::new(Counting { round: 0, fails })];
        alternate(&mut contenders, 10).await.remove(0)
    }

    #[tokio::test]
    async fn the_first_rounds_warm_up_and_are_not_counted() {
        let summary = alternated(|_| false).await.summary().unwrap();
        assert_eq!((summary.count, summary.failures), (10, 0));
        assert_eq!((summary.least, summary.most), (4.0, 13.0));
    }

    #[tokio::test]
    async fn a_failed_round_is_counted_and_told() {
        let samples = alternated(|round| round == 7).await;
        let summary = samples.summary().unwrap();
        assert_eq!((summary.count, summary.failures), (9, 1));
        assert_eq!(samples.first_failure(), Some("round 7"));
    }

    #[tokio::test]
    async fn a_contender_that_never_works_is_given_up() {
        let samples = alternated(|_| true).await;
        assert_eq!(samples.summary(), None);
        assert!(samples.is_given_up());
        let later = alternated(|round| round > 5).await;
        assert_eq!(later.summary().map(|summary| summary.failures), Some(5));
    }

    #[test]
    fn a_failure_tells_its_causes() {
        let error = soulbox_client::Error::Unreachable {
            url: "http://x".to_owned(),
            source: std::io::Error::other("refused"),
        };
        assert_eq!(
            Failure::from(error).to_string(),
            "cannot connect to http://x: refused"
        );
    }
}
