//! Why a step failed: a problem of the user's, or of the server.

use std::{error::Error, io};

use soulbox_types::Chain;

use crate::BuildFailure;

pub(crate) type Result<T, E = Problem> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    /// The user's mistake, or something the user can change: this is the message.
    #[error("{0}")]
    User(String),
    /// The user can do nothing about it; the operator finds the reason in the server's log.
    #[error("{what}")]
    Internal {
        what: &'static str,
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
}

impl Problem {
    pub(crate) fn user(message: impl Into<String>) -> Self {
        Self::User(message.into())
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
            Self::User(message) => message,
            Self::Internal { what, source } => {
                tracing::error!(build, step, error = %Chain(&*source), "could not {what}");
                format!("could not {what}: the server's log has the reason (build {build})")
            }
        };
        BuildFailure::new(step, message)
    }
}

/// `.doing("write the step")`: an internal error, named by what was tried.
pub(crate) trait Doing<T> {
    fn doing(self, what: &'static str) -> Result<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: &'static str) -> Result<T> {
        self.map_err(|source| match source.kind() {
            io::ErrorKind::StorageFull => Problem::user(format!(
                "could not {what}: the server's disk is full; free some space and build again"
            )),
            _ => Problem::internal(what, source),
        })
    }
}
