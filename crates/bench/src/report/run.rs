//! The options of a run, and how reliable its figures are.

use serde::Serialize;

use crate::{Options, host::Busy, options::FEW_ROUNDS};

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
    /// `busy`: the machine when the run began, if anybody looked.
    pub(crate) fn of(options: &Options, busy: Option<Busy>) -> Self {
        Self {
            command: options.command.clone(),
            rounds: options.rounds,
            quick: options.quick,
            commit: options.commit,
            unit: "ms",
            doubts: doubts(options.quick, options.rounds, busy),
        }
    }

    /// For everyone who sees a figure.
    pub(super) fn caution(&self) -> Option<String> {
        let why = self.doubts.join("; ");
        (!why.is_empty()).then(|| format!("These figures only show that it works: {why}."))
    }
}

fn doubts(quick: bool, rounds: usize, busy: Option<Busy>) -> Vec<String> {
    let mut doubts = Vec::new();
    if quick {
        doubts.push("it was a quick run".to_owned());
    }
    if rounds < FEW_ROUNDS {
        doubts.push(format!("{rounds} rounds are less than {FEW_ROUNDS}"));
    }
    if let Some(busy) = busy.filter(|busy| busy.is_too_much()) {
        doubts.push(format!(
            "the machine was busy with other things when it began ({} of its cpu time)",
            busy.percent()
        ));
    }
    doubts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rounds_and_busy_machines_make_figures_doubtful() {
        assert!(doubts(false, 20, None).is_empty());
        assert!(doubts(false, 20, Some(Busy::of_all(0.05))).is_empty());
        assert_eq!(
            doubts(true, 3, Some(Busy::of_all(0.63))),
            [
                "it was a quick run",
                "3 rounds are less than 20",
                "the machine was busy with other things when it began (63 % of its cpu time)",
            ]
        );
    }
}
