//! What each error means to a caller: its code, its words, and what to do.

use std::{fmt, io, time::Duration};

use soulbox_build::FilesError;
use soulbox_runtime::Error as NodeError;
use soulbox_store::{EndRow, Error as StoreError};
use soulbox_types::SandboxId;
use soulbox_volume::Error as VolumeError;

use super::{Error, ErrorCode as Code, Problem};

/// Until a build may have ended.
const BUILD_PAUSE: Duration = Duration::from_secs(10);
/// As short as may be: the next request waits by itself. But clients have 60 s for a request and its
/// repetitions, and what they show at the end shall be our text and not their own timeout.
const FIRST_BUILD_PAUSE: Duration = Duration::from_secs(5);
/// Until what the kernel did not end may be gone.
const STUCK_PAUSE: Duration = Duration::from_secs(30);
/// Until the first of two equal requests may have ended.
const REPEAT_PAUSE: Duration = Duration::from_secs(1);

impl Error {
    pub fn code(&self) -> Code {
        self.problem().code
    }

    /// Of faults of the server's own it says only that there was one: [`Chain`] has the whole story.
    ///
    /// [`Chain`]: soulbox_types::Chain
    pub fn problem(&self) -> Problem {
        match self {
            Self::Unauthenticated => {
                Problem::new(Code::Unauthenticated, "the API key is not valid")
                    .hint("use one from `soulbox key create`")
            }
            Self::Invalid(message) => Problem::new(Code::InvalidRequest, message.clone()),
            Self::Timeout { what, limit } => {
                let message = format!("{what} took longer than {} s", limit.as_secs());
                Problem::new(Code::Timeout, message)
            }
            Self::Node(error) => of_node(error),
            Self::Store(error) => of_store(error),
            Self::Files(error) => of_files(error),
            Self::Volume(error) => of_volume(error),
            Self::Internal(_) => fault(),

            Self::SandboxNotFound { id, end } => {
                let end = described(end.as_ref());
                let message =
                    format!("Sandbox \"{id}\" doesn't exist or you don't have access to it{end}");
                Problem::new(Code::SandboxNotFound, message)
            }
            Self::SandboxBroken { id, reason } => {
                let message = format!("Sandbox {id} cannot be used: {reason}");
                let hint = format!(
                    "Its files are kept: `soulbox recover {id}` brings it back, or exports its disk"
                );
                Problem::new(Code::SandboxBroken, message).hint(hint)
            }
            Self::NotBroken(id) => {
                let message = format!("Sandbox {id} is not among your broken ones");
                let hint = "`soulbox ls --broken` lists them";
                Problem::new(Code::SandboxNotBroken, message).hint(hint)
            }
            Self::SandboxEnding { id } => {
                Problem::new(Code::SandboxEnding, format!("Sandbox {id} is being killed"))
            }
            Self::SandboxPaused { id } => {
                Problem::new(Code::SandboxPaused, format!("Sandbox {id} is paused"))
                    .hint("connect to it first")
            }
            Self::SandboxNotRunning { id } => Problem::new(
                Code::SandboxNotRunning,
                format!("Sandbox {id} is not running"),
            )
            .hint("connect to it first"),
            Self::AlreadyPaused { id } => Problem::new(
                Code::SandboxAlreadyPaused,
                format!("Sandbox {id} is paused already"),
            ),
            Self::AlreadyRunning { id } => Problem::new(
                Code::SandboxAlreadyRunning,
                format!("Sandbox {id} is already running"),
            ),
            Self::ForkOfPaused { id } => {
                Problem::new(Code::SandboxForkOfPaused, format!("Sandbox {id} is paused"))
                    .hint("connect to it before you fork it")
            }
            Self::GuestUnresponsive { id } => Problem::new(
                Code::SandboxGuestUnresponsive,
                format!("envd in sandbox {id} does not answer: the sandbox goes on as before"),
            ),
            Self::TooManySandboxes(most) => Problem::new(
                Code::SandboxLimitReached,
                format!("you have reached the maximum number of concurrent sandboxes ({most})"),
            )
            .hint("kill some, or ask the operator to raise the limit"),
            Self::EndedDuringCreate(id) => Problem::new(
                Code::SandboxCreateFailed,
                format!("sandbox {id} ended while it was being made"),
            ),

            Self::IdempotencyMismatch => Problem::new(
                Code::IdempotencyMismatch,
                "this idempotency key was used with another request",
            )
            .hint("take a new key"),
            Self::IdempotencyInProgress => Problem::new(
                Code::IdempotencyInProgress,
                "the first request with this idempotency key is still under way",
            )
            .hint("try again shortly")
            .retry_after(REPEAT_PAUSE),
            Self::IdempotencyOutcomeUnknown => Problem::new(
                Code::IdempotencyOutcomeUnknown,
                "the server stopped during the first request with this idempotency key, and its \
                 outcome is not known",
            )
            .hint("list your sandboxes, then take a new key"),

            Self::InvalidReference(why) => Problem::new(
                Code::InvalidTemplateReference,
                format!("Invalid template reference: {why}"),
            ),
            Self::TemplateNotFound(name) => Problem::new(
                Code::TemplateNotFound,
                format!("template '{name}' not found"),
            ),
            Self::UnknownBuiltIn { name, known } => Problem::new(
                Code::BuiltInNotFound,
                format!("there is no built-in template '{name}'"),
            )
            .hint(format!("the built-in ones are {known}")),
            Self::TagNotFound { template, tag } => Problem::new(
                Code::TagNotFound,
                format!("tag '{tag}' does not exist for template '{template}'"),
            ),
            Self::NoBuildSucceeded(name) => Problem::new(
                Code::TemplateWithoutBuild,
                format!("no build of template '{name}' has succeeded yet"),
            )
            .hint(format!(
                "`soulbox template logs {name}` shows how far the newest is, or why it failed"
            )),
            Self::TemplateForbidden(name) => Problem::new(
                Code::TemplateForbidden,
                format!("template '{name}' belongs to the server"),
            )
            .hint("make your own instead"),
            Self::TemplateOfAnother(name) => Problem::new(
                Code::TemplateAccessDenied,
                format!("you don't have access to template '{name}'"),
            ),
            Self::SnapshotInUse { snapshot, users } => Problem::new(
                Code::SnapshotInUse,
                format!("snapshot '{snapshot}' is used by {users}"),
            )
            .hint("kill what uses it before you delete it"),
            Self::TemplateInUse { template, users } => Problem::new(
                Code::TemplateInUse,
                format!("template '{template}' is used by {users}"),
            )
            .hint("kill what uses it before you delete it"),
            Self::TemplateBuilding { name, progress } => Problem::new(
                Code::TemplateBuilding,
                format!("template '{name}' is being built for its first use: {progress}"),
            )
            .hint(format!(
                "Call again: it waits for the same build. A client that has more time says so with \
                 the header `Prefer: wait=300`, `soulbox template build --builtin {name}` shows the \
                 build, and a server with `--prebuild {name}` has it from its start"
            ))
            .retry_after(FIRST_BUILD_PAUSE),
            Self::TemplateBuildFailed { name, message } => Problem::new(
                Code::TemplateBuildFailed,
                format!("template '{name}' could not be built: {message}"),
            )
            .hint(format!(
                "Try again with `soulbox template build --builtin {name}`"
            )),
            Self::TemplateNotBuilt(name) => Problem::new(
                Code::TemplateNotBuilt,
                format!("template '{name}' is not built yet"),
            ),
            Self::NameTaken { name, by } => Problem::new(
                Code::NameTaken,
                format!("the name '{name}' belongs to {by}"),
            )
            .hint("choose another one"),
            Self::BuildNotFound(build) => {
                Problem::new(Code::BuildNotFound, format!("build '{build}' not found"))
            }
            Self::BuildEnded(build) => {
                Problem::new(Code::BuildEnded, format!("build {build} has ended already"))
            }
            Self::TooManyBuilds(most) => Problem::new(
                Code::BuildLimitReached,
                format!("you have reached the maximum number of concurrent builds ({most})"),
            )
            .hint("wait for one to end, or cancel some")
            .retry_after(BUILD_PAUSE),
            Self::NoBuilder => Problem::new(
                Code::BuildsUnavailable,
                "this server does not build templates",
            ),
            Self::UploadLink => Problem::new(
                Code::UploadLinkInvalid,
                "the upload link is not valid any more",
            )
            .hint("ask for another one"),

            Self::TenantExists(name) => {
                Problem::new(Code::TenantExists, format!("tenant {name} exists already"))
            }
            Self::KeyNotFound(id) => not_yours(Code::KeyNotFound, "API key", id),
            Self::LastKey => Problem::new(Code::LastKey, "this is your last API key")
                .hint("create another one before you delete it"),
            Self::SecretNotFound(id) => not_yours(Code::SecretNotFound, "Secret", id),
            Self::SecretExists(name) => Problem::new(
                Code::SecretExists,
                format!("Secret with name '{name}' already exists"),
            ),
            Self::SecretBusy(name) => Problem::new(
                Code::SecretBusy,
                format!("secret {name} is being changed by many at once"),
            )
            .hint("try again")
            .retry_after(REPEAT_PAUSE),
            Self::TooManySecrets(most) => Problem::new(
                Code::SecretLimitReached,
                format!("you have reached the maximum number of secrets ({most})"),
            )
            .hint("delete some"),
            Self::NoVolumes => Problem::new(Code::VolumesUnavailable, "this server has no volumes"),
            Self::VolumeNotFound(id) => not_yours(Code::VolumeNotFound, "Volume", id),
            Self::VolumeExists(name) => Problem::new(
                Code::VolumeExists,
                format!("Volume with name '{name}' already exists"),
            ),
            Self::TooManyVolumes(most) => Problem::new(
                Code::VolumeLimitReached,
                format!("you have reached the maximum number of volumes ({most})"),
            )
            .hint("delete some"),
            Self::VolumeInUse { by } => Problem::new(
                Code::VolumeInUse,
                format!("the volume is in use by {}", user(by.as_ref())),
            )
            .hint("kill it first"),
            Self::VolumeToken => {
                Problem::new(Code::VolumeTokenInvalid, "the volume token is not valid")
                    .hint("take the one that the volume has now")
            }
            Self::WebhookNotFound(id) => not_yours(Code::WebhookNotFound, "Webhook", id),
        }
    }
}

/// With the words of what is below, also where [`Error::problem`] keeps them from the caller.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
            Self::Files(error) => error.fmt(f),
            Self::Volume(error) => error.fmt(f),
            Self::Internal(what) => f.write_str(what),
            own => own.problem().fmt(f),
        }
    }
}

fn of_node(error: &NodeError) -> Problem {
    let code = match error {
        NodeError::SandboxNotFound(_) => Code::SandboxNotFound,
        NodeError::TemplateNotFound(_) => Code::TemplateNotFound,
        NodeError::WrongState { .. } => Code::SandboxStateConflict,
        NodeError::InUse { .. } => Code::InUse,
        NodeError::Damaged { .. } => Code::Damaged,
        NodeError::NoCapacity { retry_after, .. } => {
            return Problem::new(Code::SandboxCapacityUnavailable, error.to_string())
                .retry_after(*retry_after);
        }
        NodeError::KernelStuck { .. } => {
            return Problem::new(Code::KernelStuck, error.to_string())
                .hint(
                    "The operator finds more in the kernel's log (dmesg) and with `soulbox doctor`; \
                     if they do not end, only a restart of the machine helps, which keeps what is \
                     paused, snapshots and volumes",
                )
                .retry_after(STUCK_PAUSE);
        }
        NodeError::TooLarge { .. } => Code::SandboxTooLarge,
        NodeError::Unsupported { .. } => Code::NotSupportedYet,
        NodeError::TierUnavailable { .. } => Code::TierUnavailable,
        NodeError::Timeout { .. } => Code::SandboxPlacementTimeout,
        NodeError::Start { .. } => Code::SandboxCreateFailed,
        NodeError::Io { source, .. } if disk_is_full(source) => return disk_full(),
        // Ports are asked for by the server itself here.
        NodeError::PortClosed { .. } | NodeError::Io { .. } => return fault(),
    };
    Problem::new(code, error.to_string())
}

fn of_store(error: &StoreError) -> Problem {
    if error.is_disk_full() {
        disk_full()
    } else {
        fault()
    }
}

fn of_files(error: &FilesError) -> Problem {
    let code = match error {
        FilesError::TooLarge { .. } => Code::RequestTooLarge,
        FilesError::NoSpace { .. } => Code::DiskFull,
        FilesError::Cut(_) => Code::RequestCutOff,
        FilesError::Io(source) if disk_is_full(source) => return disk_full(),
        FilesError::Io(_) => return fault(),
    };
    Problem::new(code, error.to_string())
}

fn of_volume(error: &VolumeError) -> Problem {
    let code = match error {
        VolumeError::NoVolume(_) => Code::VolumeNotFound,
        VolumeError::NotFound => Code::VolumePathNotFound,
        VolumeError::Exists => Code::VolumePathExists,
        VolumeError::NotADirectory
        | VolumeError::IsADirectory
        | VolumeError::Special
        | VolumeError::Links
        | VolumeError::Root
        | VolumeError::Path(_)
        | VolumeError::TooMany(_) => Code::VolumePathInvalid,
        VolumeError::NoSpace => Code::VolumeFull,
        VolumeError::HostFull { .. } | VolumeError::ReadOnly => Code::DiskFull,
        VolumeError::Io { .. } => return fault(),
    };
    Problem::new(code, error.to_string())
}

/// The operator gets the whole story, the caller only that it was not its fault.
fn fault() -> Problem {
    let message = "something went wrong inside the server";
    Problem::new(Code::InternalServerError, message).hint("its log says what")
}

fn disk_full() -> Problem {
    let message = "the server's disk is full; nothing was changed";
    Problem::new(Code::DiskFull, message).hint("free space there and try again")
}

fn disk_is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

/// One who asks for another's is not told that it is there.
fn not_yours(code: Code, what: &str, id: &str) -> Problem {
    let message = format!("{what} {id} doesn't exist or you don't have access to it");
    Problem::new(code, message)
}

fn user(sandbox: Option<&SandboxId>) -> String {
    sandbox.map_or_else(
        || "a sandbox that is being made".to_owned(),
        |id| format!("sandbox {id}"),
    )
}

/// Why it is not there is the question that users ask next.
fn described(end: Option<&EndRow>) -> String {
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
