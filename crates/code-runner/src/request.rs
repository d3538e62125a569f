//! The request and the result of one execution.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

const LONGEST_RUN: Duration = Duration::from_mins(10);
const MOST_OUTPUT: usize = 8 << 20;

/// One piece of code.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Execution {
    pub language: String,
    pub code: String,
    #[serde(default)]
    pub stdin: String,
    #[serde(default)]
    pub args: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// `None`: the sandbox's default user.
    #[serde(default)]
    pub user: Option<String>,
    /// Of the program; 30 s when nothing is said.
    #[serde(default)]
    timeout_ms: Option<u64>,
    /// Of the compiler; 60 s when nothing is said.
    #[serde(default)]
    compile_timeout_ms: Option<u64>,
    /// Of each stream; 1 MiB when nothing is said. What comes after that is dropped.
    #[serde(default)]
    max_output_bytes: Option<usize>,
}

impl Execution {
    pub(crate) fn timeout(&self) -> Duration {
        bounded(self.timeout_ms, Duration::from_secs(30))
    }

    pub(crate) fn compile_timeout(&self) -> Duration {
        bounded(self.compile_timeout_ms, Duration::from_mins(1))
    }

    /// Lowers what is kept of each stream, for calls with many executions.
    pub fn keep_at_most(&mut self, bytes: usize) {
        self.max_output_bytes = Some(self.max_output().min(bytes));
    }

    pub(crate) fn max_output(&self) -> usize {
        self.max_output_bytes.unwrap_or(1 << 20).min(MOST_OUTPUT)
    }
}

fn bounded(millis: Option<u64>, default: Duration) -> Duration {
    millis
        .map_or(default, Duration::from_millis)
        .min(LONGEST_RUN)
}

/// What came of one execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outcome {
    pub language: &'static str,
    /// Of a compiled language.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compile: Option<Phase>,
    /// Absent when it did not compile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Phase>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Phase {
    /// Absent when a signal ended it.
    pub exit_code: Option<i32>,
    /// As in `killed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    pub stdout: String,
    pub stderr: String,
    pub time_ms: u64,
    pub timed_out: bool,
    /// More came out than was asked for.
    pub truncated: bool,
}

impl Phase {
    pub(crate) fn succeeded(&self) -> bool {
        self.exit_code == Some(0) && !self.timed_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_defaults_and_ceilings() {
        let read = |text| serde_json::from_str::<Execution>(text).unwrap();
        let plain = read(r#"{"language": "python", "code": ""}"#);
        assert_eq!(plain.timeout(), Duration::from_secs(30));
        assert_eq!(plain.max_output(), 1 << 20);
        let greedy = read(
            r#"{"language": "c", "code": "", "timeout_ms": 99999999, "max_output_bytes": 99999999}"#,
        );
        assert_eq!(greedy.timeout(), LONGEST_RUN);
        assert_eq!(greedy.max_output(), MOST_OUTPUT);
    }

    #[test]
    fn a_typo_is_an_error() {
        let text = r#"{"language": "python", "code": "", "timeout": 5}"#;
        assert!(serde_json::from_str::<Execution>(text).is_err());
    }
}
