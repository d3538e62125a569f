//! Every error as it goes over the wire. Clients parse them, so `errors.txt` changes only when that is
//! meant. Those that can be provoked are in `tests/` too.

use std::{fmt::Write, io, time::Duration};

use http_body_util::BodyExt;
use soulbox_control::{Error, build::FilesError, volume::Error as VolumeError};
use soulbox_execute::Error as ExecuteError;
use soulbox_guest::Error as GuestError;
use soulbox_runtime::Error as NodeError;
use soulbox_store::{EndRow, Error as StoreError};
use soulbox_types::{EndReason, SandboxId, SandboxState, Tier, UnixMillis};

use super::*;

const LIMIT: Duration = Duration::from_secs(3);

fn id() -> SandboxId {
    "iabc".parse().unwrap()
}

fn full() -> io::Error {
    io::ErrorKind::StorageFull.into()
}

fn boom() -> io::Error {
    io::Error::other("boom")
}

fn text(text: &str) -> String {
    text.to_owned()
}

fn of_sandboxes() -> Vec<Error> {
    let end = EndRow {
        at: UnixMillis(1_763_235_653_120),
        reason: EndReason::Died,
        detail: text("signal 9"),
    };
    vec![
        Error::Unauthenticated,
        Error::SandboxNotFound {
            id: id(),
            end: None,
        },
        Error::SandboxNotFound {
            id: id(),
            end: Some(end),
        },
        Error::SandboxBroken {
            id: id(),
            reason: text("why"),
        },
        Error::NotBroken(id()),
        Error::SandboxEnding { id: id() },
        Error::SandboxPaused { id: id() },
        Error::SandboxNotRunning { id: id() },
        Error::AlreadyPaused { id: id() },
        Error::GuestUnresponsive { id: id() },
        Error::AlreadyRunning { id: id() },
        Error::ForkOfPaused { id: id() },
        Error::TooManySandboxes(5),
        Error::EndedDuringCreate(id()),
        Error::Timeout {
            what: "it",
            limit: LIMIT,
        },
        Error::Invalid(text("it is wrong")),
        Error::Internal("boom"),
        Error::IdempotencyMismatch,
        Error::IdempotencyInProgress,
        Error::IdempotencyOutcomeUnknown,
    ]
}

fn of_templates() -> Vec<Error> {
    vec![
        Error::InvalidReference(text("why")),
        Error::TemplateNotFound(text("t")),
        Error::UnknownBuiltIn {
            name: text("t"),
            known: text("a, b"),
        },
        Error::TagNotFound {
            template: text("t"),
            tag: text("v1"),
        },
        Error::NoBuildSucceeded(text("t")),
        Error::TemplateForbidden(text("t")),
        Error::TemplateOfAnother(text("t")),
        Error::SnapshotInUse {
            snapshot: text("s"),
            users: text("sandbox a"),
        },
        Error::TemplateInUse {
            template: text("t"),
            users: text("sandbox a"),
        },
        Error::TemplateBuilding {
            name: text("t"),
            progress: text("step 1"),
        },
        Error::TemplateBuildFailed {
            name: text("t"),
            message: text("why"),
        },
        Error::TemplateNotBuilt(text("t")),
        Error::NameTaken {
            name: text("t"),
            by: "a template",
        },
        Error::BuildNotFound(text("b")),
        Error::BuildEnded(text("b")),
        Error::TooManyBuilds(3),
        Error::NoBuilder,
        Error::UploadLink,
        Error::Files(FilesError::TooLarge { limit: 1 }),
        Error::Files(FilesError::NoSpace { why: text("why") }),
        Error::Files(FilesError::Cut(boom())),
        Error::Files(FilesError::Io(full())),
        Error::Files(FilesError::Io(boom())),
    ]
}

fn of_tenants() -> Vec<Error> {
    vec![
        Error::TenantExists(text("t")),
        Error::KeyNotFound(text("k")),
        Error::LastKey,
        Error::SecretNotFound(text("s")),
        Error::SecretExists(text("s")),
        Error::SecretBusy(text("s")),
        Error::TooManySecrets(3),
        Error::NoVolumes,
        Error::VolumeNotFound(text("v")),
        Error::VolumeExists(text("v")),
        Error::TooManyVolumes(3),
        Error::VolumeInUse { by: None },
        Error::VolumeInUse { by: Some(id()) },
        Error::VolumeToken,
        Error::WebhookNotFound(text("w")),
        Error::Volume(VolumeError::NoVolume(text("v"))),
        Error::Volume(VolumeError::NotFound),
        Error::Volume(VolumeError::Exists),
        Error::Volume(VolumeError::NotADirectory),
        Error::Volume(VolumeError::IsADirectory),
        Error::Volume(VolumeError::Special),
        Error::Volume(VolumeError::Links),
        Error::Volume(VolumeError::Root),
        Error::Volume(VolumeError::Path("too long")),
        Error::Volume(VolumeError::TooMany(3)),
        Error::Volume(VolumeError::NoSpace),
        Error::Volume(VolumeError::Io {
            what: "write",
            source: boom(),
        }),
    ]
}

fn of_the_machine() -> Vec<Error> {
    let node = [
        NodeError::SandboxNotFound(id()),
        NodeError::TemplateNotFound("basebasebasebasebase".parse().unwrap()),
        NodeError::WrongState {
            id: id(),
            state: SandboxState::Paused,
        },
        NodeError::PortClosed { id: id(), port: 1 },
        NodeError::InUse {
            what: text("it"),
            users: text("others"),
        },
        NodeError::Damaged {
            what: text("it"),
            message: text("why"),
        },
        NodeError::NoCapacity {
            what: text("memory"),
            retry_after: LIMIT,
        },
        NodeError::TooLarge { what: text("it") },
        NodeError::Unsupported {
            tier: Tier::Jail,
            what: "it",
        },
        NodeError::Timeout {
            what: "it",
            limit: LIMIT,
        },
        NodeError::Start {
            step: text("step"),
            message: text("why"),
        },
        NodeError::io("it", full()),
        NodeError::io("it", boom()),
    ];
    let store = [
        StoreError::Unsynced(full()),
        StoreError::Unsynced(boom()),
        StoreError::Corrupt {
            table: "t",
            column: "c",
        },
    ];
    node.into_iter()
        .map(Error::Node)
        .chain(store.into_iter().map(Error::Store))
        .collect()
}

fn of_code() -> Vec<ExecuteError> {
    vec![
        ExecuteError::UnknownLanguage(text("klingon")),
        ExecuteError::NotInstalled {
            language: "c",
            installed: vec!["sh"],
        },
        ExecuteError::TooLarge { limit: 1 },
        ExecuteError::Mute {
            what: "starting",
            limit: LIMIT,
        },
        ExecuteError::NotAName(text("A=B")),
        ExecuteError::Archive(boom()),
        ExecuteError::Sandbox(GuestError::Unreachable(NodeError::SandboxNotFound(id()))),
        ExecuteError::Sandbox(GuestError::Refused {
            code: text("not_found"),
            message: text("why"),
        }),
        ExecuteError::Sandbox(GuestError::CutOff {
            what: "running",
            source: None,
        }),
        ExecuteError::Sandbox(GuestError::TooSlow {
            what: "it",
            limit: LIMIT,
        }),
        ExecuteError::Sandbox(GuestError::Protocol(text("why"))),
        ExecuteError::Sandbox(GuestError::Archive(boom())),
    ]
}

async fn told(response: Response) -> String {
    let (parts, body) = response.into_parts();
    let mut line = parts.status.as_str().to_owned();
    for name in ["content-type", "should-retry", "retry-after"] {
        if let Some(value) = parts.headers.get(name) {
            write!(line, " {name}={}", value.to_str().unwrap()).unwrap();
        }
    }
    assert!(parts.headers.len() <= 3, "{:?}", parts.headers);
    let body = body.collect().await.unwrap().to_bytes();
    format!("{line}\n{}", str::from_utf8(&body).unwrap())
}

#[tokio::test]
async fn every_error_is_told_as_it_is_written_down() {
    let mut all = String::new();
    let control = [of_sandboxes(), of_templates(), of_tenants(), of_the_machine()];
    for error in control.into_iter().flatten() {
        let name = format!("{error:?}");
        let told = told(ApiError::from(error).into_response()).await;
        writeln!(all, "# {name}\n{told}\n").unwrap();
    }
    for error in of_code() {
        let name = format!("{error:?}");
        let told = told(ApiError::from(error).into_response()).await;
        writeln!(all, "# {name}\n{told}\n").unwrap();
    }
    assert!(all.trim_end() == include_str!("errors.txt").trim_end(), "{all}");
}
