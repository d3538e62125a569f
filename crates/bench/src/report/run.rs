//! How a run was asked for, and what its figures can bear.

use serde::Serialize;

use crate::Options;

/// With fewer, a percentile is a single round.
const FEW_ROUNDS: usize = 20;

/// What a reader needs to repeat it.
#[derive(Debug, Clone, Serialize)]
pub struct Run {
    /// As it was typed, without secrets.
    pub command: String,
    pub rounds: usize,
    pub quick: bool,
    /// Of the source, if that was known when it was built.
    pub commit: Option<&'static str>,
    /// Of every time that has no unit of its own.
    pub unit: &'static str,
    /// Why the figures only show that it works.
    pub doubts: Vec<String>,
}

impl Run {
    pub(crate) fn of(options: &Options) -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            command: options.command.clone(),
            rounds: options.rounds,
            quick: options.quick,
            commit: options.commit,
            unit: "ms",
            doubts: doubts(options.quick, options.rounds, load(), cpus),
        }
    }

    /// For everyone who sees a figure.
    pub(super) fn caution(&self) -> Option<String> {
        let why = self.doubts.join("; ");
        (!why.is_empty()).then(|| format!("These figures only show that it works: {why}."))
    }
}

fn load() -> f64 {
    let line = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let last_minute = line.split(' ').next().and_then(|first| first.parse().ok());
    last_minute.unwrap_or_default()
}

#[expect(clippy::cast_precision_loss, reason = "no machine has 2^52 cpus")]
fn doubts(quick: bool, rounds: usize, load: f64, cpus: usize) -> Vec<String> {
    let mut doubts = Vec::new();
    if quick {
        doubts.push("it was a quick run".to_owned());
    }
    if rounds < FEW_ROUNDS {
        doubts.push(format!("{rounds} rounds are less than {FEW_ROUNDS}"));
    }
    if load > cpus as f64 {
        doubts.push(format!(
            "the machine was busy with other things (load {load:.1} on {cpus} cpus)"
        ));
    }
    doubts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rounds_and_busy_machines_make_figures_doubtful() {
        assert!(doubts(false, 20, 2.0, 2).is_empty());
        assert_eq!(
            doubts(true, 3, 12.69, 2),
            [
                "it was a quick run",
                "3 rounds are less than 20",
                "the machine was busy with other things (load 12.7 on 2 cpus)",
            ]
        );
    }
}
