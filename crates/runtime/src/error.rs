use std::{borrow::Cow, io, time::Duration};

use serde::{Deserialize, Serialize};
use soulbox_types::{SandboxId, SandboxState, TemplateId, Tier};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a node or runtime could not do what was asked. Callers branch on the variant. It can be sent
/// from a node elsewhere: of an [`io::Error`] its number or its text arrives.
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
    Unsupported { tier: Tier, what: Cow<'static, str> },
    /// No weaker one takes its place.
    #[error("the {tier} tier is not available on this server: {reason}")]
    TierUnavailable { tier: Tier, reason: String },
    /// Nothing is made or woken where what runs could not be ended.
    #[error(
        "the kernel does not end processes: {ends} sandboxes were killed and are still there, the \
         first one for {} s", longest.as_secs()
    )]
    KernelStuck { ends: usize, longest: Duration },
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
        /// Also where it was found without asking the kernel.
        disk_full: bool,
        message: String,
    }

    pub(super) fn serialize<S: Serializer>(
        error: &io::Error,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let sent = Sent {
            errno: error.raw_os_error(),
            disk_full: error.kind() == io::ErrorKind::StorageFull,
            message: Chain(error).to_string(),
        };
        sent.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<io::Error, D::Error> {
        let sent = Sent::deserialize(deserializer)?;
        // Callers ask for these two: no room on the disk, no descriptors.
        Ok(match sent.errno {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None if sent.disk_full => io::Error::new(io::ErrorKind::StorageFull, sent.message),
            None => io::Error::other(sent.message),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(error: &Error) -> Error {
        let text = serde_json::to_string(error).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn an_error_arrives_as_it_was_sent() {
        let id: SandboxId = "isomewhere".parse().unwrap();
        for error in [
            Error::SandboxNotFound(id.clone()),
            Error::WrongState {
                id: id.clone(),
                state: SandboxState::Paused,
            },
            Error::PortClosed { id, port: 80 },
            Error::NoCapacity {
                what: "memory".into(),
                retry_after: Duration::from_millis(2500),
            },
            Error::Timeout {
                what: "it".into(),
                limit: Duration::from_secs(3),
            },
            Error::TierUnavailable {
                tier: Tier::Gvisor,
                reason: "no runsc".into(),
            },
            Error::KernelStuck {
                ends: 4,
                longest: Duration::from_secs(31),
            },
        ] {
            assert_eq!(format!("{:?}", sent(&error)), format!("{error:?}"));
        }
    }

    #[test]
    fn of_an_io_error_what_callers_ask_for_arrives() {
        let source = |error: &Error| match error {
            Error::Io { source, .. } => (source.kind(), source.raw_os_error(), source.to_string()),
            other => panic!("{other}"),
        };
        for error in [
            io::Error::from_raw_os_error(28),
            io::Error::from_raw_os_error(24),
            io::Error::from(io::ErrorKind::StorageFull),
            io::Error::other("e2fsck: it is broken"),
        ] {
            let error = Error::io("writing", error);
            let (kind, errno, text) = source(&error);
            assert_eq!(source(&sent(&error)), (kind, errno, text));
        }
    }
}
