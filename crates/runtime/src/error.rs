use std::{io, time::Duration};

use soulbox_types::{SandboxId, SandboxState, TemplateId, Tier};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a node or runtime could not do what was asked. Callers branch on the variant.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("sandbox {0} is not here")]
    SandboxNotFound(SandboxId),
    #[error("template {0} is not here")]
    TemplateNotFound(TemplateId),
    #[error("sandbox {id} is {state:?}")]
    WrongState { id: SandboxId, state: SandboxState },
    /// The sandbox runs, but nothing listens.
    #[error("port {port} of sandbox {id} is closed")]
    PortClosed { id: SandboxId, port: u16 },
    #[error("{what} is used by {users}")]
    InUse { what: String, users: String },
    /// What was kept is not what was written: it is not used.
    #[error("{what} is damaged: {message}")]
    Damaged { what: String, message: String },
    /// Retryable: the machine is full just now.
    #[error("no capacity: {what}")]
    NoCapacity { what: String, retry_after: Duration },
    /// However long it waits: retrying is of no use.
    #[error("it can never fit here: {what}")]
    TooLarge { what: String },
    #[error("{what} is not supported by the {tier:?} tier")]
    Unsupported { tier: Tier, what: &'static str },
    #[error("{what} took longer than {} ms", limit.as_millis())]
    Timeout { what: &'static str, limit: Duration },
    /// The sandbox could not be set up; `step` says at which of the steps in `docs/jail.md`.
    #[error("could not start the sandbox at step {step}: {message}")]
    Start { step: String, message: String },
    #[error("{what}")]
    Io {
        what: String,
        #[source]
        source: io::Error,
    },
}

impl Error {
    pub fn io(what: impl Into<String>, source: io::Error) -> Self {
        Self::Io {
            what: what.into(),
            source,
        }
    }
}
