//! How many sandboxes a tenant had at a time, and how fast it started them.
//!
//! Computed from the lives of sandboxes in the store, so a restart of the server leaves no gap.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use soulbox_store::{PauseChange, RunSpan};
use soulbox_types::{SandboxId, UnixMillis};

use crate::{Control, Error, Result, Tenant};

const DEFAULT_WINDOW: Duration = Duration::from_hours(7 * 24);
const SHORTEST_STEP: u64 = 5_000;
const MOST_POINTS: u64 = 300;
/// More than a tenant can have in the time that rows are kept, at a sane rate.
const MOST_ROWS: u32 = 200_000;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TeamSample {
    pub at: UnixMillis,
    /// The most at a time since the sample before.
    pub concurrent: u64,
    /// Per second, since the sample before.
    pub start_rate: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TeamMetric {
    Concurrent,
    StartRate,
}

impl Control {
    /// Oldest first. Without a window: the last seven days.
    pub async fn team_metrics(
        &self,
        tenant: &Tenant,
        start: Option<UnixMillis>,
        end: Option<UnixMillis>,
    ) -> Result<Vec<TeamSample>> {
        let now = UnixMillis::now();
        let end = end.unwrap_or(now).min(now);
        let window = u64::try_from(DEFAULT_WINDOW.as_millis()).unwrap_or(u64::MAX);
        let start = start.unwrap_or(UnixMillis(end.0.saturating_sub(window)));
        if start > end {
            let message = "start must be before end, and not in the future";
            return Err(Error::Invalid(message.to_owned()));
        }
        self.journal.flush().await;
        let run_spans = self
            .store
            .run_spans(&tenant.id, start, end, MOST_ROWS)
            .await?;
        let pause_changes = self.store.pause_changes(&tenant.id, end, MOST_ROWS).await?;
        Ok(samples(&run_spans, &pause_changes, start, end))
    }

    /// When a metric was at its highest.
    pub async fn team_maximum(
        &self,
        tenant: &Tenant,
        start: Option<UnixMillis>,
        end: Option<UnixMillis>,
        metric: TeamMetric,
    ) -> Result<(UnixMillis, f64)> {
        let samples = self.team_metrics(tenant, start, end).await?;
        let value = |sample: &TeamSample| match metric {
            #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
            TeamMetric::Concurrent => sample.concurrent as f64,
            TeamMetric::StartRate => sample.start_rate,
        };
        // The first of the highest.
        let highest = samples
            .iter()
            .rev()
            .max_by(|a, b| value(a).total_cmp(&value(b)));
        Ok(highest.map_or((UnixMillis::now(), 0.0), |sample| {
            (sample.at, value(sample))
        }))
    }
}

/// The window in equal steps; each sample stands at the end of its step.
fn samples(
    run_spans: &[RunSpan],
    pause_changes: &[PauseChange],
    start: UnixMillis,
    end: UnixMillis,
) -> Vec<TeamSample> {
    let step = ((end.0 - start.0).div_ceil(MOST_POINTS)).max(SHORTEST_STEP);
    // What begins and what ends within one millisecond met: the beginnings come first.
    let mut changes = BTreeMap::<u64, (i64, i64)>::new();
    let mut starts = BTreeMap::<u64, u64>::new();
    let by_sandbox = group(pause_changes);
    for span in run_spans {
        *starts.entry(span.from.0).or_default() += 1;
        for (from, to) in runs(
            span,
            by_sandbox.get(&span.sandbox).map_or(&[], Vec::as_slice),
        ) {
            changes.entry(from.0).or_default().0 += 1;
            if let Some(to) = to {
                changes.entry(to.0).or_default().1 += 1;
            }
        }
    }
    let before = changes.range(..start.0);
    let mut now: i64 = before.map(|(_, (begun, ended))| begun - ended).sum();
    let mut samples = Vec::new();
    let mut from = start.0;
    while from < end.0 {
        let to = (from + step).min(end.0);
        let mut most = now;
        for (_, (begun, ended)) in changes.range(from..to) {
            most = most.max(now + begun);
            now += begun - ended;
        }
        let started: u64 = starts.range(from..to).map(|(_, count)| count).sum();
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let start_rate = started as f64 * 1000.0 / (to - from) as f64;
        samples.push(TeamSample {
            at: UnixMillis(to),
            concurrent: u64::try_from(most).unwrap_or_default(),
            start_rate,
        });
        from = to;
    }
    samples
}

fn group(pause_changes: &[PauseChange]) -> HashMap<SandboxId, Vec<&PauseChange>> {
    let mut groups = HashMap::<SandboxId, Vec<&PauseChange>>::new();
    for change in pause_changes {
        groups
            .entry(change.sandbox.clone())
            .or_default()
            .push(change);
    }
    groups
}

/// The parts of a life in which it ran.
fn runs(span: &RunSpan, pause_changes: &[&PauseChange]) -> Vec<(UnixMillis, Option<UnixMillis>)> {
    let mut runs = Vec::new();
    let mut since = Some(span.from);
    for change in pause_changes {
        match (since, change.paused) {
            (Some(from), true) => {
                runs.push((from, Some(change.at)));
                since = None;
            }
            (None, false) => since = Some(change.at),
            _ => {}
        }
    }
    if let Some(from) = since {
        runs.push((from, span.to));
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(id: &str, from: u64, to: Option<u64>) -> RunSpan {
        RunSpan {
            sandbox: id.parse().unwrap(),
            from: UnixMillis(from),
            to: to.map(UnixMillis),
        }
    }

    fn change(id: &str, at: u64, paused: bool) -> PauseChange {
        PauseChange {
            sandbox: id.parse().unwrap(),
            at: UnixMillis(at),
            paused,
        }
    }

    fn concurrent(run_spans: &[RunSpan], pause_changes: &[PauseChange]) -> Vec<u64> {
        let samples = samples(
            run_spans,
            pause_changes,
            UnixMillis(10_000),
            UnixMillis(30_000),
        );
        samples.iter().map(|sample| sample.concurrent).collect()
    }

    #[test]
    fn a_sample_is_the_most_at_a_time_within_its_step() {
        let run_spans = [
            span("ia", 0, None),
            span("ib", 12_000, Some(13_000)),
            span("ic", 12_500, Some(21_000)),
            span("id", 1_000, Some(2_000)),
        ];
        assert_eq!(concurrent(&run_spans, &[]), [3, 2, 2, 1]);
        let all = samples(&run_spans, &[], UnixMillis(10_000), UnixMillis(30_000));
        assert!((all[0].start_rate - 0.4).abs() < 1e-9);
        assert_eq!(all[3].at, UnixMillis(30_000));
    }

    #[test]
    fn what_rests_does_not_count() {
        let run_spans = [span("ia", 0, Some(29_000))];
        let pause_changes = [change("ia", 9_000, true), change("ia", 21_000, false)];
        assert_eq!(concurrent(&run_spans, &pause_changes), [0, 0, 1, 1]);
    }

    #[test]
    fn a_long_window_has_a_bounded_number_of_samples() {
        let week = samples(&[], &[], UnixMillis(0), UnixMillis(604_800_000));
        assert_eq!(week.len(), 300);
        assert!(samples(&[], &[], UnixMillis(5), UnixMillis(5)).is_empty());
    }
}
