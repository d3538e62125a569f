//! Every error as it goes over the wire. Clients parse them, so `errors.txt` changes only when that is
//! meant. Those that can be provoked are in `tests/` too.

use std::{collections::HashSet, fmt::Write, io, time::Duration};

use soulbox_control::{Error, build::FilesError, volume::Error as VolumeError};
use soulbox_runtime::Error as NodeError;
use soulbox_store::{EndRow, Error as StoreError};
use soulbox_types::{EndReason, SandboxId, SandboxState, Tier, UnixMillis};

use super::*;
use crate::shared::answer::on_the_wire;

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
            what: "it".into(),
        },
        NodeError::TierUnavailable {
            tier: Tier::Gvisor,
            reason: text("it"),
        },
        NodeError::KernelStuck {
            ends: 4,
            longest: Duration::from_secs(31),
        },
        NodeError::Timeout {
            what: "it".into(),
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

/// What the surfaces say themselves, and what comes from code that is to run.
const NOT_OF_CONTROL: [Code; 11] = [
    Code::RequestTooSlow,
    Code::RouteNotFound,
    Code::MethodNotFound,
    Code::ClientOutdated,
    Code::AccessDenied,
    Code::SandboxUnreachable,
    Code::SandboxUnresponsive,
    Code::SandboxRefused,
    Code::UnknownLanguage,
    Code::LanguageNotInstalled,
    Code::OperationFailed,
];

fn of_control() -> impl Iterator<Item = Error> {
    let all = [
        of_sandboxes(),
        of_templates(),
        of_tenants(),
        of_the_machine(),
    ];
    all.into_iter().flatten()
}

#[tokio::test]
async fn every_error_is_told_as_it_is_written_down() {
    let mut all = String::new();
    for error in of_control() {
        let name = format!("{error:?}");
        let shape = on_the_wire(respond(ApiError::from(error).problem())).await;
        writeln!(all, "# {name}\n{shape}\n").unwrap();
    }
    assert!(
        all.trim_end() == include_str!("errors.txt").trim_end(),
        "{all}"
    );
}

#[test]
fn no_code_is_without_an_error() {
    let codes: HashSet<Code> = of_control()
        .map(|error| error.code())
        .chain(NOT_OF_CONTROL)
        .collect();
    assert_eq!(codes, Code::ALL.iter().copied().collect());
}

/// The columns that `soulbox-control` does not know.
#[test]
fn the_documentation_has_the_same_statuses() {
    let written: Vec<String> = include_str!("../../../../../docs/errors.md")
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.split(" | ").skip(4).collect::<Vec<_>>().join(" | "))
        .collect();
    let row = |code: &Code| {
        let shape = shape(*code);
        let shown = shape
            .error_code
            .map_or("–".to_owned(), |shown| format!("`{shown}`"));
        format!("{} | {shown} |", shape.status.as_str())
    };
    let mapped: Vec<String> = Code::ALL.iter().map(row).collect();
    assert_eq!(written, mapped);
}
