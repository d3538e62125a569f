//! One way of doing a thing, timed round by round.

use std::time::Duration;

use async_trait::async_trait;

use crate::Samples;

/// Rounds that fill caches and are not counted.
const WARM_UP: usize = 3;

/// Why a round could not be measured, or a way is not there.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub String);

impl Failure {
    pub fn new(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// A way to do something, such as `docker run` for 'from nothing to the first output'.
#[async_trait]
pub trait Way: Send {
    /// As in the tables: `soulbox, warm`, `docker run`.
    fn name(&self) -> &str;

    /// What exactly is timed, in a sentence.
    fn method(&self) -> &str;

    /// Does it once and says how long the measured part took. What has to be made before and
    /// removed after is done here too, outside the measured time.
    async fn round(&mut self) -> Result<Duration, Failure>;
}

/// Rounds of the ways alternate, so that a slow moment of the machine meets all of them. A failed
/// round is counted, not dropped; a way that fails in its warm-up three times is given up.
pub async fn alternate(ways: &mut [Box<dyn Way>], rounds: usize) -> Vec<Samples> {
    let mut all: Vec<Samples> = ways.iter().map(|_| Samples::default()).collect();
    for round in 0..rounds + WARM_UP {
        for (way, samples) in ways.iter_mut().zip(&mut all) {
            if samples.is_given_up() {
                continue;
            }
            match (way.round().await, round < WARM_UP) {
                (Ok(_), true) => {}
                (Ok(took), false) => samples.add(took),
                (Err(failure), warming) => samples.failed(&failure, warming),
            }
        }
    }
    all
}
