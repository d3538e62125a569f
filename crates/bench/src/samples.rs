//! Samples and their summary.

use std::time::Duration;

use serde::Serialize;

use crate::Failure;

/// A contender that fails so often before it is measured does not work here.
const GIVE_UP: usize = 3;
/// Nor one that fails so often one after another: each may take as long as its time limit.
const GIVE_UP_IN_A_ROW: usize = 5;

/// The times of one contender, in the order they were taken.
#[derive(Debug, Clone, Default)]
pub struct Samples {
    times: Vec<Duration>,
    failures: usize,
    failed_warming: usize,
    failed_in_a_row: usize,
    first_failure: Option<String>,
}

impl Samples {
    pub fn add(&mut self, took: Duration) {
        self.times.push(took);
        self.failed_in_a_row = 0;
    }

    pub fn failed(&mut self, failure: &Failure, warming: bool) {
        self.first_failure.get_or_insert_with(|| failure.0.clone());
        if warming {
            self.failed_warming += 1;
        } else {
            self.failures += 1;
            self.failed_in_a_row += 1;
        }
    }

    /// Those of another run of the same.
    pub fn merge(&mut self, other: &Self) {
        self.times.extend_from_slice(&other.times);
        self.failures += other.failures;
        if self.first_failure.is_none() {
            self.first_failure.clone_from(&other.first_failure);
        }
    }

    pub fn is_given_up(&self) -> bool {
        self.failed_warming >= GIVE_UP || self.failed_in_a_row >= GIVE_UP_IN_A_ROW
    }

    pub fn failures(&self) -> usize {
        self.failures
    }

    pub fn first_failure(&self) -> Option<&str> {
        self.first_failure.as_deref()
    }

    pub fn times(&self) -> &[Duration] {
        &self.times
    }

    /// `None` when nothing was measured.
    pub fn summary(&self) -> Option<Summary> {
        let mut sorted: Vec<f64> = self.times.iter().map(|t| t.as_secs_f64() * 1e3).collect();
        sorted.sort_by(f64::total_cmp);
        let (first, last) = (*sorted.first()?, *sorted.last()?);
        Some(Summary {
            count: sorted.len(),
            failures: self.failures,
            least: first,
            p50: percentile(&sorted, 50),
            p90: percentile(&sorted, 90),
            p99: percentile(&sorted, 99),
            most: last,
        })
    }
}

/// In milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    pub count: usize,
    pub failures: usize,
    pub least: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub most: f64,
}

/// The nearest rank: a value that was really measured. `sorted` is not empty.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted[rank - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let mut samples = Samples::default();
        for n in 1..=200 {
            samples.add(Duration::from_millis(n));
        }
        let summary = samples.summary().unwrap();
        assert_eq!(
            [
                summary.least,
                summary.p50,
                summary.p90,
                summary.p99,
                summary.most
            ]
            .map(|value| format!("{value:.0}")),
            ["1", "100", "180", "198", "200"]
        );
    }

    #[test]
    fn nothing_measured_has_no_summary_and_one_value_is_all_of_them() {
        let mut samples = Samples::default();
        assert_eq!(samples.summary(), None);
        samples.failed(&Failure::new("no daemon"), false);
        samples.add(Duration::from_millis(7));
        let summary = samples.summary().unwrap();
        assert_eq!((summary.count, summary.failures), (1, 1));
        assert_eq!((summary.p50, summary.p99), (7.0, 7.0));
        assert_eq!(samples.first_failure(), Some("no daemon"));
    }
}
