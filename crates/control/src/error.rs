//! Errors, and what callers are told of them: a code from a closed list, a message, what to do, and
//! whether trying again helps. No protocol is known here.

mod code;
mod message;
mod problem;

use std::time::Duration;

use soulbox_store::EndRow;
use soulbox_types::SandboxId;

pub use self::{code::ErrorCode, problem::Problem};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the control plane did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    Unauthenticated,
    /// Also a sandbox of another tenant. `end` only when it was the caller's own.
    SandboxNotFound {
        id: SandboxId,
        end: Option<EndRow>,
    },
    /// Only told to its owner.
    SandboxBroken {
        id: SandboxId,
        reason: String,
    },
    /// Asked for one that is not among the broken ones.
    NotBroken(SandboxId),
    SandboxEnding {
        id: SandboxId,
    },
    /// Nothing of it can be asked or changed until it is woken.
    SandboxPaused {
        id: SandboxId,
    },
    SandboxNotRunning {
        id: SandboxId,
    },
    AlreadyPaused {
        id: SandboxId,
    },
    /// It was to be paused only while envd answers.
    GuestUnresponsive {
        id: SandboxId,
    },
    AlreadyRunning {
        id: SandboxId,
    },
    Invalid(String),
    InvalidReference(String),
    TemplateNotFound(String),
    UnknownBuiltIn {
        name: String,
        known: String,
    },
    TagNotFound {
        template: String,
        tag: String,
    },
    /// Whoever sees a tag missing would look for the tag; the build is what is wrong.
    NoBuildSucceeded(String),
    TemplateForbidden(String),
    TemplateOfAnother(String),
    SnapshotInUse {
        snapshot: String,
        users: String,
    },
    TemplateInUse {
        template: String,
        users: String,
    },
    /// A template of the server's own is not there yet, and soon will be.
    TemplateBuilding {
        name: String,
        progress: String,
    },
    TemplateBuildFailed {
        name: String,
        message: String,
    },
    /// Nobody asked for it yet. Whoever makes a sandbox from it has it built.
    TemplateNotBuilt(String),
    NameTaken {
        name: String,
        by: &'static str,
    },
    BuildNotFound(String),
    BuildEnded(String),
    TooManyBuilds(usize),
    NoBuilder,
    UploadLink,
    Files(#[from] soulbox_build::FilesError),
    ForkOfPaused {
        id: SandboxId,
    },
    TooManySandboxes(u32),
    TenantExists(String),
    KeyNotFound(String),
    LastKey,
    SecretNotFound(String),
    SecretExists(String),
    SecretBusy(String),
    TooManySecrets(usize),
    NoVolumes,
    VolumeNotFound(String),
    VolumeExists(String),
    TooManyVolumes(usize),
    VolumeInUse {
        by: Option<SandboxId>,
    },
    VolumeToken,
    Volume(#[from] soulbox_volume::Error),
    WebhookNotFound(String),
    IdempotencyMismatch,
    IdempotencyInProgress,
    IdempotencyOutcomeUnknown,
    EndedDuringCreate(SandboxId),
    Timeout {
        what: &'static str,
        limit: Duration,
    },
    Node(#[from] soulbox_runtime::Error),
    Store(#[from] soulbox_store::Error),
    /// A fault of ours.
    Internal(&'static str),
}
