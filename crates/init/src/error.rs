//! Which step failed, and why.

use std::io;

use soulbox_types::guest::InitStatus;

#[derive(Debug)]
pub(crate) struct Failure {
    step: &'static str,
    detail: String,
    source: io::Error,
}

impl Failure {
    pub(crate) fn status(&self) -> InitStatus {
        let mut message = self.source.to_string();
        if !self.detail.is_empty() {
            message = format!("{}: {message}", self.detail);
        }
        InitStatus::Failed {
            step: self.step.to_owned(),
            message,
        }
    }
}

/// Names the step in which a call failed.
pub(crate) trait Context<T> {
    fn at(self, step: &'static str) -> Result<T, Failure>;
    fn at_with(self, step: &'static str, detail: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> Context<T> for Result<T, E> {
    fn at(self, step: &'static str) -> Result<T, Failure> {
        self.at_with(step, String::new)
    }

    fn at_with(self, step: &'static str, detail: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|error| Failure {
            step,
            detail: detail(),
            source: error.into(),
        })
    }
}
