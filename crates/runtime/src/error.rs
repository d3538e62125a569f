use std::{borrow::Cow, io, time::Duration};

use serde::{Deserialize, Serialize};
use soulbox_types::{SandboxId, SandboxState, TemplateId, Tier};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a node or runtime could not do what was asked. Callers branch on the variant. It can be sent
/// from a node elsewhere: of an [`io::Error`] arrive its number and its text.
#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    #[error("{what} is not supported by the {tier} tier")]
    Unsupported {
        tier: Tier,
        what: Cow<'static, str>,
    },
    /// No weaker one takes its place.
    #[error("the {tier} tier is not available on this server: {reason}")]
    TierUnavailable { tier: Tier, reason: String },
    #[error("{what} took longer than {} ms", limit.as_millis())]
    Timeout {
        what: Cow<'static, str>,
        limit: Duration,
    },
    /// The sandbox could not be set up; `step` says at which of the steps in `docs/jail.md`.
    #[error("could not start the sandbox at step {step}: {message}")]
    Start { step: String, message: String },
    #[error("{what}")]
    Io {
        what: String,
        #[source]
        #[serde(with = "io_error")]
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

mod io_error {
    use std::io;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use soulbox_types::Chain;

    #[derive(Serialize, Deserialize)]
    struct Sent {
        errno: Option<i32>,
        message: String,
    }

    pub(super) fn serialize<S: Serializer>(
        error: &io::Error,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let sent = Sent {
            errno: error.raw_os_error(),
            message: Chain(error).to_string(),
        };
        sent.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<io::Error, D::Error> {
        let Sent { errno, message } = Sent::deserialize(deserializer)?;
        Ok(match errno {
            // Callers ask for it: no room on the disk, no descriptors.
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::other(message),
        })
    }
}
