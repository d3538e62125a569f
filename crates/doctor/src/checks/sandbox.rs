//! A whole sandbox, made by the code that makes everybody's. The caller makes it: that code is not
//! in this crate.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{advice::advice, report::Finding, surroundings::Surroundings};

/// What came of starting one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tried {
    /// With what was done.
    Works(String),
    Failed {
        step: String,
        message: String,
    },
    /// With the reason.
    Not(String),
}

pub(crate) fn check(tried: Tried, data_dir: &Path) -> Finding {
    match tried {
        Tried::Works(detail) => Finding::ok(detail),
        Tried::Failed { step, message } => {
            let advice = advice(&step, &message, &Surroundings::look(data_dir));
            Finding::fail(format!("{step}: {message}"), advice)
        }
        Tried::Not(reason) => Finding::unknown(reason),
    }
}
