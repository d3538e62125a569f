//! A whole sandbox, made by the code that makes everybody's. The caller makes it: that code is not
//! in this crate.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{advice::advice, environment::Environment, report::Finding};

/// What came of starting one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TrialResult {
    /// With what was done.
    Works(String),
    Failed {
        step: String,
        message: String,
    },
    /// With the reason.
    Not(String),
}

pub(crate) fn check(tried: TrialResult, data_dir: &Path) -> Finding {
    match tried {
        TrialResult::Works(detail) => Finding::ok(detail),
        TrialResult::Failed { step, message } => {
            let advice = advice(&step, &message, &Environment::detect(data_dir));
            Finding::fail(format!("{step}: {message}"), advice)
        }
        TrialResult::Not(reason) => Finding::unknown(reason),
    }
}
