//! The figures with their method.
//!
//! # Layout
//! - the types here are the JSON of a run, every single time included
//! - `table`: for a terminal; `html`: one page that refers to nothing outside
//! - `machine`: where it was measured; `run`: how it was asked for
//! - `compare`, `numbers`: what both show

mod compare;
mod html;
mod machine;
mod numbers;
mod run;
mod table;

use std::collections::BTreeMap;

use serde::Serialize;

pub use html::html;
pub(crate) use machine::BUSY_BEFORE;
pub use machine::machine;
pub use run::Run;
pub use table::table;

use crate::{Samples, Summary};

/// Everything of one run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// SoulBox's version and whether it is an optimised build.
    pub version: String,
    pub optimised: bool,
    pub run: Run,
    /// RFC 3339, UTC.
    pub started_at: String,
    pub seconds: f64,
    pub machine: BTreeMap<String, String>,
    pub groups: Vec<Group>,
    /// What the run says about the promises: `create warm: 31.2 times faster than docker run`.
    pub verdicts: Vec<Verdict>,
}

/// One question, answered by several contenders in the same run.
#[derive(Debug, Clone, Serialize)]
pub struct Group {
    /// `create-warm`; stable, for scripts.
    pub id: String,
    pub title: String,
    /// How it was measured, in a few sentences.
    pub method: String,
    pub rows: Vec<Row>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub name: String,
    pub method: String,
    /// Times in milliseconds; `None` for what was skipped or is not a time.
    pub summary: Option<Summary>,
    /// Each time in milliseconds, in order.
    pub times: Vec<f64>,
    /// Other figures by name, with their unit: `("memory per sandbox", 1.4, "MiB")`.
    pub figures: Vec<Figure>,
    /// Why there is no figure, or the first failure of those counted.
    pub remark: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    pub name: String,
    pub value: f64,
    pub unit: String,
}

/// A promise, and whether this run kept it.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    pub promise: String,
    pub measured: String,
    /// `None`: what it compares with was not there, or there was too little to judge by.
    pub kept: Option<bool>,
}

impl Row {
    pub fn of(name: &str, method: &str, samples: &Samples) -> Self {
        let times = samples.times().iter().map(|time| time.as_secs_f64() * 1e3);
        Self {
            name: name.to_owned(),
            method: method.to_owned(),
            summary: samples.summary(),
            times: times.collect(),
            figures: Vec::new(),
            remark: samples.first_failure().map(str::to_owned),
        }
    }

    pub fn skipped(name: &str, why: &str) -> Self {
        let mut row = Self::of(name, "", &Samples::default());
        row.remark = Some(format!("skipped: {why}"));
        row
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    pub(super) fn row(name: &str, milliseconds: &[f64]) -> Row {
        let mut samples = Samples::default();
        for time in milliseconds {
            samples.add(Duration::from_secs_f64(time / 1e3));
        }
        Row::of(name, "asked", &samples)
    }

    pub(super) fn group(rows: Vec<Row>) -> Group {
        Group {
            id: "create-warm".to_owned(),
            title: "From nothing to the first output".to_owned(),
            method: "Rounds alternate.".to_owned(),
            rows,
        }
    }

    /// Everything that a run can come to, in small.
    pub(super) fn report() -> Report {
        let mut ours = row("soulbox, warm", &[4.0, 3.0, 5.0]);
        ours.figures.push(Figure {
            name: "all there after".to_owned(),
            value: 1500.0,
            unit: "ms".to_owned(),
        });
        let mut docker = row("docker run", &[400.0, 1200.0]);
        docker.remark = Some("no <daemon> & \"none\"".to_owned());
        if let Some(summary) = docker.summary.as_mut() {
            summary.failures = 1;
        }
        let rows = vec![
            ours,
            row("bare clone", &[0.9, 1.0]),
            docker,
            Row::skipped("runsc run", "runsc is not installed"),
        ];
        let verdict = |promise: &str, measured: &str, kept| Verdict {
            promise: promise.to_owned(),
            measured: measured.to_owned(),
            kept,
        };
        Report {
            version: "1.2.3".to_owned(),
            optimised: true,
            run: Run {
                command: "soulbox bench create".to_owned(),
                rounds: 50,
                quick: false,
                commit: Some("0123abc"),
                unit: "ms",
                doubts: Vec::new(),
            },
            started_at: "2026-01-02T03:04:05Z".to_owned(),
            seconds: 61.0,
            machine: [("kernel", "6.18"), ("cores", "2")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            groups: vec![group(rows)],
            verdicts: vec![
                verdict("20 times faster than docker run", "100.0 times", Some(true)),
                verdict("at most 3 times a bare clone", "4.4 times", Some(false)),
                verdict("gvisor", "not there", None),
            ],
        }
    }

    #[test]
    fn the_json_holds_every_single_time() {
        let json = serde_json::to_value(report()).unwrap();
        let row = &json["groups"][0]["rows"][0];
        assert_eq!(row["times"], serde_json::json!([4.0, 3.0, 5.0]));
        assert_eq!(row["summary"]["p50"], 4.0);
        assert_eq!(json["run"]["unit"], "ms");
        assert_eq!(json["run"]["command"], "soulbox bench create");
        assert_eq!(
            json["groups"][0]["rows"][3]["summary"],
            serde_json::Value::Null
        );
    }
}
