//! The figures with their method.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{Samples, Summary};

/// Everything of one run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// SoulBox's version and whether it is an optimised build.
    pub version: String,
    pub optimised: bool,
    /// RFC 3339, UTC.
    pub started_at: String,
    pub seconds: f64,
    pub machine: BTreeMap<String, String>,
    pub groups: Vec<Group>,
    /// What the run says about the promises: `create warm: 31.2 times faster than docker run`.
    pub verdicts: Vec<Verdict>,
}

/// One question, answered by several ways in the same run.
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
    /// `None`: what it compares with was not there.
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
