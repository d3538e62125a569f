//! Why a step did not work out: the user's affair, or ours.

use std::{error::Error, io};

use soulbox_types::Chain;

use crate::BuildFailure;

pub(crate) type Result<T, E = Problem> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    /// Told to the user in these words.
    #[error("{0}")]
    Told(String),
    /// The user can do nothing about it; the operator finds the reason in the server's log.
    #[error("{what}")]
    Internal {
        what: &'static str,
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
}

impl Problem {
    pub(crate) fn told(message: impl Into<String>) -> Self {
        Self::Told(message.into())
    }

    pub(crate) fn internal(
        what: &'static str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self::Internal {
            what,
            source: source.into(),
        }
    }

    pub(crate) fn into_failure(self, step: &str, build: &str) -> BuildFailure {
        let message = match self {
            Self::Told(message) => message,
            Self::Internal { what, source } => {
                tracing::error!(build, step, error = %Chain(&*source), "could not {what}");
                format!("could not {what}: the server's log has the reason (build {build})")
            }
        };
        BuildFailure::new(step, message)
    }
}

/// `.doing("write the step")`: an error of ours, named by what was tried.
pub(crate) trait Doing<T> {
    fn doing(self, what: &'static str) -> Result<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: &'static str) -> Result<T> {
        self.map_err(|source| match source.kind() {
            io::ErrorKind::StorageFull => Problem::told(format!(
                "could not {what}: the server's disk is full; free some space and build again"
            )),
            _ => Problem::internal(what, source),
        })
    }
}
