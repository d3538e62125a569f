//! What a sandbox used over its life, in bounded space.

use std::{sync::Weak, time::Duration};

use soulbox_runtime::{MetricSample, Stats};
use soulbox_types::{SandboxState, UnixMillis};

use crate::LocalNode;

pub(crate) const INTERVAL: Duration = Duration::from_secs(5);
/// Half an hour at full resolution; older samples get sparser.
const CAPACITY: usize = 360;

#[derive(Debug, Default)]
pub(crate) struct History {
    samples: Vec<MetricSample>,
    previous: Option<(UnixMillis, u64)>,
}

impl History {
    pub(crate) fn add(&mut self, at: UnixMillis, stats: Stats) {
        let cpu_used_pct = match self.previous {
            Some((before, micros)) if at > before => {
                let elapsed = at.0.saturating_sub(before.0);
                percent(stats.cpu_micros.saturating_sub(micros), elapsed)
            }
            _ => 0.0,
        };
        self.previous = Some((at, stats.cpu_micros));
        if self.samples.len() == CAPACITY {
            self.thin_out();
        }
        self.samples.push(MetricSample {
            at,
            cpu_used_pct,
            stats,
        });
    }

    /// Drops every second sample of the older half: the whole life stays visible.
    fn thin_out(&mut self) {
        let half = CAPACITY / 2;
        let mut index = 0;
        self.samples.retain(|_| {
            index += 1;
            index > half || index % 2 == 1
        });
    }

    pub(crate) fn last(&self) -> Option<&MetricSample> {
        self.samples.last()
    }

    pub(crate) fn samples(&self) -> Vec<MetricSample> {
        self.samples.clone()
    }
}

/// Of one cpu, with two decimals.
fn percent(cpu_micros: u64, elapsed_millis: u64) -> f64 {
    let hundredths = cpu_micros.saturating_mul(10) / elapsed_millis.max(1);
    f64::from(u32::try_from(hundredths).unwrap_or(u32::MAX)) / 100.0
}

/// Samples every running sandbox for as long as the node is there.
pub(crate) async fn sample_all(node: Weak<LocalNode>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(node) = node.upgrade() else { return };
        for id in node.in_state(SandboxState::Running) {
            node.sample(&id).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_life_stays_visible_in_bounded_space() {
        let mut history = History::default();
        for second in 0..10_000_u64 {
            let stats = Stats {
                cpu_micros: second * 500_000,
                ..Stats::default()
            };
            history.add(UnixMillis(second * 1000), stats);
        }
        let samples = history.samples();
        assert!(samples.len() <= CAPACITY);
        assert_eq!(samples[0].at, UnixMillis(0));
        assert_eq!(samples.last().unwrap().at, UnixMillis(9_999_000));
        assert!((samples.last().unwrap().cpu_used_pct - 50.0).abs() < 0.01);
        assert!(samples.windows(2).all(|pair| pair[0].at < pair[1].at));
    }
}
