//! Words that a definition's steps leave open: `@name@` in a RUN step.
//!
//! A definition that stands on another one may have values of its own for the other one's steps.

use std::collections::BTreeMap;

use anyhow::ensure;
use soulbox_build::{Step, StepKind};

pub(super) type Values = BTreeMap<String, String>;

/// The steps with every value in its place. A value that has none is a mistake in the definition.
pub(super) fn fill(steps: &[Step], values: &Values) -> anyhow::Result<Vec<Step>> {
    let mut filled = steps.to_vec();
    for (name, value) in values {
        let open = format!("@{name}@");
        let mut found = false;
        let runs = filled.iter_mut().filter(|step| step.kind == StepKind::Run);
        for arg in runs.flat_map(|step| &mut step.args) {
            if arg.contains(&open) {
                *arg = arg.replace(&open, value);
                found = true;
            }
        }
        ensure!(found, "no step has {open}");
    }
    Ok(filled)
}
