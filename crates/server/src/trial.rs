//! Whether a sandbox really starts here, found out by starting one: by the server before it says
//! that it is ready, and by the doctor.

use std::{
    fs::{File, Permissions},
    io::{self, Read},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    },
    path::Path,
    sync::Arc,
};

use anyhow::{Context, anyhow};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, openat};
use soulbox_doctor::{Surroundings, Tried};
use soulbox_jail::{Instance, Jail, JailConfig};
use soulbox_net::NetConfig;
use soulbox_runtime::Error;
use soulbox_template::{HostOptions, Template, Templates};

use crate::preflight::has_sandboxes;

/// Links of this tag count as free; nobody has it, or we had better know.
const NO_SERVER: &str = "0000";
const SLOTS: u32 = 2;
/// Some tens of bytes.
const LONGEST_INSTANCE: u64 = 4096;
const SCRATCH: &str = ".soulbox-doctor-";
/// In a scratch folder, so that no data folder is taken for one, whatever its name.
const INSIDE: &str = "trial";

/// What a failed start is told with.
#[derive(Debug, PartialEq, Eq)]
struct Failure {
    step: String,
    message: String,
    /// The message says what to do.
    is_explained: bool,
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        match error {
            Error::Start { step, message } => Self {
                step: step.clone(),
                message: message.clone(),
                is_explained: false,
            },
            Error::Io { what, source } => Self {
                step: what.clone(),
                message: with_causes(source),
                is_explained: explains_itself(source),
            },
            other => Self {
                step: "start".to_owned(),
                message: with_causes(other),
                is_explained: false,
            },
        }
    }
}

fn explains_itself(error: &io::Error) -> bool {
    use soulbox_net::Error as Network;
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    inner.is_some_and(|inner| {
        !matches!(
            inner,
            Network::Firewall(_) | Network::Kernel { .. } | Network::TimedOut { .. }
        )
    })
}

fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}

/// Before the server is ready. A server that has sandboxes starts all the same: without it nobody
/// reaches or ends them.
pub(crate) async fn before_ready(
    jail: &Jail,
    template: &Template,
    data_dir: &Path,
) -> anyhow::Result<()> {
    let error = match jail.trial(template).await {
        Ok(trial) => {
            let millis = trial.total().as_millis();
            tracing::info!(
                millis,
                "a trial sandbox was started, asked, paused and ended"
            );
            return Ok(());
        }
        Err(error) => error,
    };
    if is_full(&error, has_sandboxes(data_dir)) {
        tracing::warn!(
            "no sandbox could be tried, and none can be made before there is room: {error}"
        );
        return Ok(());
    }
    let why = explain(&error, data_dir).await;
    if has_sandboxes(data_dir) {
        tracing::error!("new sandboxes will fail, only those that are here can be used. {why}");
        return Ok(());
    }
    Err(why)
}

/// Room may come while the server runs. Where there is no sandbox that could make it, none will.
fn is_full(error: &Error, has_sandboxes: bool) -> bool {
    match error {
        Error::NoCapacity { .. } => has_sandboxes,
        Error::Io { source, .. } => source.kind() == io::ErrorKind::StorageFull,
        _ => false,
    }
}

/// What failed, what it needs, and what the doctor finds missing.
pub(crate) async fn explain(error: &Error, data_dir: &Path) -> anyhow::Error {
    let failure = Failure::from(error);
    let data_dir = data_dir.to_owned();
    let told = tokio::task::spawn_blocking(move || {
        let problems = soulbox_doctor::missing(&data_dir);
        tell(&failure, &problems, &Surroundings::look(&data_dir))
    })
    .await;
    anyhow!(told.unwrap_or_else(|_| error.to_string()))
}

fn tell(failure: &Failure, problems: &[soulbox_doctor::Problem], around: &Surroundings) -> String {
    let Failure { step, message, .. } = failure;
    let mut text = format!("sandboxes cannot run on this machine yet. {step}: {message}");
    if problems.is_empty() && !failure.is_explained {
        let advice = soulbox_doctor::advice(step, message, around);
        text = format!("{text}; {advice}");
    }
    for problem in problems {
        text = format!("{text}. {problem}");
    }
    format!("{text} (`soulbox doctor` shows every check)")
}

/// Whether a server would find addresses for its sandboxes: one that has a data folder has them.
/// Blocking, and for the host's own network.
pub fn find_addresses(data_dir: &Path) -> Result<(), Tried> {
    if data_dir.join("instance.json").exists() {
        return Ok(());
    }
    let found = NetConfig::pick_range(NO_SERVER);
    found.map(drop).map_err(|error| Tried::Failed {
        step: "addresses for sandboxes".to_owned(),
        message: error.to_string(),
    })
}

/// Makes and ends a sandbox without a server, in a folder of its own beside the data folder. For a
/// process in a network of its own: links, rules and forwarding of the host's are a server's.
pub async fn try_sandbox(data_dir: &Path) -> Tried {
    match try_in_scratch(data_dir).await {
        Ok(Ok(detail)) => Tried::Works(detail),
        Ok(Err(error)) => {
            let Failure { step, message, .. } = Failure::from(&error);
            Tried::Failed { step, message }
        }
        Err(error) => Tried::Failed {
            step: "preparing".to_owned(),
            message: format!("{error:#}"),
        },
    }
}

async fn try_in_scratch(data_dir: &Path) -> anyhow::Result<Result<String, Error>> {
    let near = data_dir.ancestors().find(|path| path.is_dir());
    let near = near.unwrap_or(Path::new("/")).to_owned();
    clear_up(&near).await;
    let (scratch, jail) = tokio::task::spawn_blocking(move || prepare(&near)).await??;
    let template = jail.templates.all().first().cloned();
    let tried = match Jail::open(jail).await {
        Ok(jail) => {
            let template = template.context("the template is not there")?;
            let tried = jail.trial(&template).await;
            jail.close().await;
            tried
        }
        Err(error) => Err(error),
    };
    tokio::task::spawn_blocking(move || drop(scratch)).await?;
    Ok(tried.map(|trial| {
        let steps = trial.steps.iter();
        let steps = steps.map(|(what, took)| format!("{what} {} ms", took.as_millis()));
        steps.collect::<Vec<_>>().join(", ")
    }))
}

/// What doctors that were killed have left. Others may be able to write here: only what root alone
/// can have made is believed.
async fn clear_up(near: &Path) {
    let Ok(entries) = std::fs::read_dir(near) else {
        return;
    };
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(SCRATCH) {
            continue;
        }
        let path = entry.path();
        let Some((folder, instance)) = left_by_a_doctor(&path) else {
            continue;
        };
        if let Ok(true) = lock(&folder) {
            Jail::remove_traces(&instance).await;
            if let Err(error) = std::fs::remove_dir_all(&path) {
                tracing::warn!(%error, "what a killed doctor left stays");
            }
        }
    }
}

fn left_by_a_doctor(path: &Path) -> Option<(File, Instance)> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let open = |at: BorrowedFd<'_>, path: &Path, more| -> Option<File> {
        let file: File = openat(at, path, flags | more, Mode::empty()).ok()?.into();
        let found = file.metadata().ok()?;
        (found.uid() == 0 && found.mode() & 0o022 == 0).then_some(file)
    };
    let folder = open(CWD, path, OFlags::DIRECTORY)?;
    let inside = open(folder.as_fd(), Path::new(INSIDE), OFlags::DIRECTORY)?;
    let file = open(inside.as_fd(), Path::new("instance.json"), OFlags::empty())?;
    let mut text = String::new();
    let is_file = file.metadata().ok()?.is_file();
    is_file
        .then(|| file.take(LONGEST_INSTANCE).read_to_string(&mut text))?
        .ok()?;
    Some((folder, serde_json::from_str(&text).ok()?))
}

/// `false`: a doctor is at work there.
fn lock(folder: &File) -> io::Result<bool> {
    match flock(folder, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Gone with this value.
struct Scratch {
    _dir: tempfile::TempDir,
    _lock: File,
}

fn prepare(near: &Path) -> anyhow::Result<(Scratch, JailConfig)> {
    let scratch = tempfile::Builder::new()
        .prefix(SCRATCH)
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(near)
        .with_context(|| format!("cannot write to {}", near.display()))?;
    let folder = File::open(scratch.path())?;
    lock(&folder)?;
    let dir = scratch.path().join(INSIDE);
    let scratch = Scratch {
        _dir: scratch,
        _lock: folder,
    };
    std::fs::DirBuilder::new().mode(0o700).create(&dir)?;
    let programs = soulbox_embed::install(&dir.join("bin"))?;
    let options = HostOptions {
        include_opt: false,
        sudo: programs.sudo.clone(),
        extra_ca: Vec::new(),
    };
    let template = soulbox_template::prepare_host(&dir.join("base"), &options)?;
    let templates = Templates::open(dir.join("builds"))?;
    templates.set_own(template);
    let config = JailConfig {
        sandboxes_dir: dir.join("sandboxes"),
        volumes_dir: dir.join("volumes"),
        templates: Arc::new(templates),
        programs,
        network_range: None,
        open_ranges: Vec::new(),
        pool: 0,
        max_sandboxes: SLOTS,
        data_dir: dir,
    };
    Ok((scratch, config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_tells_its_step_its_cause_and_what_to_do() {
        let error = Error::io(
            "could not set up the network",
            io::Error::other("nft: Operation not supported"),
        );
        let said = tell(&Failure::from(&error), &[], &Surroundings::default());
        for part in [
            "could not set up the network",
            "Operation not supported",
            "nf_tables",
        ] {
            assert!(said.contains(part), "{said}");
        }
        let problem = soulbox_doctor::Problem {
            what: "nftables: no module".into(),
            advice: "modprobe nf_tables".into(),
        };
        let said = tell(&Failure::from(&error), &[problem], &Surroundings::default());
        assert!(said.contains("no module; modprobe nf_tables"), "{said}");
    }

    #[test]
    fn only_what_root_alone_can_have_made_is_taken_for_a_killed_doctors() {
        let near = tempfile::tempdir().unwrap();
        let make = |name: &str, inside: &str| {
            let folder = near.path().join(name).join(inside);
            std::fs::create_dir_all(&folder).unwrap();
            let text = r#"{"tag":"00aa","range":"10.213.0.0/16"}"#;
            std::fs::write(folder.join("instance.json"), text).unwrap();
            near.path().join(name)
        };
        let real = make("real", INSIDE);
        assert_eq!(left_by_a_doctor(&real).unwrap().1.tag, "00aa");
        assert!(left_by_a_doctor(&make("data-folder", "")).is_none());

        let link = near.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert!(left_by_a_doctor(&link).is_none());

        let open = make("open", INSIDE);
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&open, all).unwrap();
        assert!(left_by_a_doctor(&open).is_none());

        if rustix::process::geteuid().is_root() {
            let others = make("others", INSIDE);
            std::os::unix::fs::chown(&others, Some(65_534), Some(65_534)).unwrap();
            assert!(left_by_a_doctor(&others).is_none());
        }
    }

    #[test]
    fn a_full_disk_is_no_reason_to_refuse_the_start() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let full = Error::io("could not make the sandbox's disk", full);
        assert!(is_full(&full, false));
        let refused = io::Error::from(io::ErrorKind::PermissionDenied);
        let refused = Error::io("could not start soulbox-init", refused);
        assert!(!is_full(&refused, true));
        let no_ids = Error::NoCapacity {
            what: "host ids".into(),
            retry_after: std::time::Duration::ZERO,
        };
        assert!(is_full(&no_ids, true) && !is_full(&no_ids, false));
    }
}
