//! The log and the result of a build.

use soulbox_runtime::LogLevel;

/// Where a build's lines go. Called often and from several tasks; must not block.
pub trait BuildLog: Send + Sync + std::fmt::Debug {
    /// `step` as in [`BuildFailure::step`].
    fn line(&self, level: LogLevel, step: Option<&str>, message: &str);
}

/// Why there is no template. Nothing of the build is left, except cached steps.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BuildFailure {
    /// `base`, `finalize`, or the number of a step of the last stage, counted from 1: E2B's clients
    /// find the user's source line by it.
    pub step: String,
    /// For the user: what happened and what to do.
    pub message: String,
}

impl BuildFailure {
    pub fn new(step: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            step: step.into(),
            message: message.into(),
        }
    }
}
