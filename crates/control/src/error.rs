use std::time::Duration;

use soulbox_store::EndRow;
use soulbox_types::SandboxId;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the control plane did not do what was asked. The texts are for the caller.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the API key is not valid: use one from `soulbox key create`")]
    Unauthenticated,
    /// Also a sandbox of another tenant. `end` only when it was the caller's own.
    #[error("Sandbox \"{id}\" doesn't exist or you don't have access to it{}", told(end.as_ref()))]
    SandboxNotFound { id: SandboxId, end: Option<EndRow> },
    /// Only told to its owner.
    #[error(
        "Sandbox {id} cannot be used: {reason}. Its files are kept: `soulbox recover {id}` brings it \
         back, or exports its disk"
    )]
    SandboxBroken { id: SandboxId, reason: String },
    /// Asked for one that is not among the broken ones.
    #[error("Sandbox {0} is not among your broken ones: `soulbox ls --broken` lists them")]
    NotBroken(SandboxId),
    #[error("Sandbox {id} is being killed")]
    SandboxEnding { id: SandboxId },
    /// Nothing of it can be asked or changed until it is woken.
    #[error("Sandbox {id} is paused: connect to it first")]
    SandboxPaused { id: SandboxId },
    #[error("Sandbox {id} is not running: connect to it first")]
    SandboxNotRunning { id: SandboxId },
    #[error("Sandbox {id} is paused already")]
    AlreadyPaused { id: SandboxId },
    /// It was to be paused only while envd answers.
    #[error("envd in sandbox {id} does not answer: the sandbox goes on as before")]
    GuestUnresponsive { id: SandboxId },
    #[error("Sandbox {id} is already running")]
    AlreadyRunning { id: SandboxId },
    #[error("{0}")]
    Invalid(String),
    #[error("Invalid template reference: {0}")]
    InvalidReference(String),
    #[error("template '{0}' not found")]
    TemplateNotFound(String),
    #[error("there is no built-in template '{name}': the built-in ones are {known}")]
    UnknownBuiltIn { name: String, known: String },
    #[error("tag '{tag}' does not exist for template '{template}'")]
    TagNotFound { template: String, tag: String },
    /// Whoever sees a tag missing would look for the tag; the build is what is wrong.
    #[error(
        "no build of template '{0}' has succeeded yet: `soulbox template logs {0}` shows how far \
         the newest is, or why it failed"
    )]
    NoBuildSucceeded(String),
    #[error("template '{0}' belongs to the server: make your own instead")]
    TemplateForbidden(String),
    #[error("you don't have access to template '{0}'")]
    TemplateOfAnother(String),
    #[error("snapshot '{snapshot}' is used by {users}: kill what uses it before you delete it")]
    SnapshotInUse { snapshot: String, users: String },
    #[error("template '{template}' is used by {users}: kill what uses it before you delete it")]
    TemplateInUse { template: String, users: String },
    /// A template of the server's own is not there yet, and soon will be.
    #[error(
        "template '{name}' is being built: {progress}. Try again shortly, or watch it with \
         `soulbox template build --builtin {name}`"
    )]
    TemplateBuilding { name: String, progress: String },
    #[error(
        "template '{name}' could not be built: {message}. Try again with \
         `soulbox template build --builtin {name}`"
    )]
    TemplateBuildFailed { name: String, message: String },
    /// Nobody asked for it yet. Whoever makes a sandbox from it has it built.
    #[error("template '{0}' is not built yet")]
    TemplateNotBuilt(String),
    #[error("the name '{name}' belongs to {by}: choose another one")]
    NameTaken { name: String, by: &'static str },
    #[error("build '{0}' not found")]
    BuildNotFound(String),
    #[error("build {0} has ended already")]
    BuildEnded(String),
    #[error(
        "you have reached the maximum number of concurrent builds ({0}): wait for one to end, \
         or cancel some"
    )]
    TooManyBuilds(usize),
    #[error("this server does not build templates")]
    NoBuilder,
    #[error("the upload link is not valid any more: ask for another one")]
    UploadLink,
    #[error(transparent)]
    Files(#[from] soulbox_build::FilesError),
    #[error("Sandbox {id} is paused: connect to it before you fork it")]
    ForkOfPaused { id: SandboxId },
    #[error(
        "you have reached the maximum number of concurrent sandboxes ({0}): kill some, or ask \
         the operator to raise the limit"
    )]
    TooManySandboxes(u32),
    #[error("tenant {0} exists already")]
    TenantExists(String),
    #[error("API key {0} doesn't exist or you don't have access to it")]
    KeyNotFound(String),
    #[error("this is your last API key: create another one before you delete it")]
    LastKey,
    #[error("Secret {0} doesn't exist or you don't have access to it")]
    SecretNotFound(String),
    #[error("Secret with name '{0}' already exists")]
    SecretExists(String),
    #[error("secret {0} is being changed by many at once: try again")]
    SecretBusy(String),
    #[error("you have reached the maximum number of secrets ({0}): delete some")]
    TooManySecrets(usize),
    #[error("this server has no volumes")]
    NoVolumes,
    #[error("Volume {0} doesn't exist or you don't have access to it")]
    VolumeNotFound(String),
    #[error("Volume with name '{0}' already exists")]
    VolumeExists(String),
    #[error("you have reached the maximum number of volumes ({0}): delete some")]
    TooManyVolumes(usize),
    #[error("the volume is in use by {}: kill it first", user(by.as_ref()))]
    VolumeInUse { by: Option<SandboxId> },
    #[error("the volume token is not valid: get it with GET /volumes/{{volumeID}}")]
    VolumeToken,
    #[error(transparent)]
    Volume(#[from] soulbox_volume::Error),
    #[error("Webhook {0} doesn't exist or you don't have access to it")]
    WebhookNotFound(String),
    #[error("this idempotency key was used with another request: take a new key")]
    IdempotencyMismatch,
    #[error("the first request with this idempotency key is still under way: try again shortly")]
    IdempotencyInProgress,
    #[error(
        "the server stopped during the first request with this idempotency key, and its outcome \
         is not known: list your sandboxes, then take a new key"
    )]
    IdempotencyOutcomeUnknown,
    #[error("sandbox {0} ended while it was being made")]
    EndedDuringCreate(SandboxId),
    #[error("{what} took longer than {} s", limit.as_secs())]
    Timeout { what: &'static str, limit: Duration },
    #[error(transparent)]
    Node(#[from] soulbox_runtime::Error),
    #[error(transparent)]
    Store(#[from] soulbox_store::Error),
    /// A fault of ours.
    #[error("{0}")]
    Internal(&'static str),
}

fn user(sandbox: Option<&SandboxId>) -> String {
    sandbox.map_or_else(
        || "a sandbox that is being made".to_owned(),
        |id| format!("sandbox {id}"),
    )
}

/// Why it is not there is the question that users ask next.
fn told(end: Option<&EndRow>) -> String {
    let Some(end) = end else { return String::new() };
    let at = i64::try_from(end.at.0)
        .ok()
        .and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok())
        .map(|at| format!(" at {at:.3}"))
        .unwrap_or_default();
    let detail = if end.detail.is_empty() {
        String::new()
    } else {
        format!(": {}", end.detail)
    };
    format!(" (ended{at}, {}{detail})", end.reason.as_str())
}
