//! Whether a sandbox really starts on this machine, checked by starting one: by the server before it
//! reports to be ready, and by the doctor.

use std::{
    io::{self, Read},
    os::unix::fs::DirBuilderExt,
    path::Path,
    sync::Arc,
};

use anyhow::anyhow;
use soulbox_doctor::{Environment, Leftover, Scratch, TrialResult, left_over};
use soulbox_jail::Jail;
use soulbox_machine::{Instance, Machine, MachineConfig, Trial, trial, trial_until};
use soulbox_net::NetConfig;
use soulbox_runtime::{Error, Runtime};
use soulbox_template::Template;
use soulbox_types::Chain;
use tokio_util::sync::CancellationToken;

use crate::{
    preflight::{has_sandboxes, keeps_something},
    wiring::Stopped,
};

/// Links with this tag count as free: no server has it.
const NO_SERVER: &str = "0000";
const SLOTS: u32 = 2;
/// Some tens of bytes.
const LONGEST_INSTANCE: u64 = 4096;
/// In a scratch folder, so that no data folder is taken for one, whatever its name.
const INSIDE: &str = "trial";

/// What is reported of a failed start.
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
                message: Chain(source).to_string(),
                is_explained: explains_itself(source),
            },
            other => Self {
                step: "start".to_owned(),
                message: Chain(other).to_string(),
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

/// Before the server is ready. A server that has sandboxes starts all the same: without it they could
/// not be reached or ended.
pub(crate) async fn before_ready(
    machine: &Machine,
    runtime: &dyn Runtime,
    template: &Template,
    data_dir: &Path,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let error = match trial_until(machine, runtime, template, stop.cancelled()).await {
        Ok(None) => return Err(Stopped.into()),
        Ok(Some(trial)) => {
            let millis = trial.total().as_millis();
            tracing::info!(
                millis,
                "a trial sandbox was started, asked, paused and ended"
            );
            return Ok(());
        }
        Err(error) => error,
    };
    if is_full(&error, has_sandboxes(data_dir), keeps_something(data_dir)) {
        tracing::warn!(
            "no sandbox could be tried, and none can be created before there is capacity: {error}"
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

/// Capacity may become free while the server runs, but only if there is something that can end.
fn is_full(error: &Error, has_sandboxes: bool, keeps_something: bool) -> bool {
    match error {
        Error::NoCapacity { .. } => has_sandboxes,
        Error::Io { source, .. } => source.kind() == io::ErrorKind::StorageFull && keeps_something,
        _ => false,
    }
}

/// What failed, what it needs, and what the doctor finds missing.
pub(crate) async fn explain(error: &Error, data_dir: &Path) -> anyhow::Error {
    let failure = Failure::from(error);
    let data_dir = data_dir.to_owned();
    let text = tokio::task::spawn_blocking(move || {
        let problems = soulbox_doctor::missing(&data_dir);
        describe(&failure, &problems, &Environment::detect(&data_dir))
    })
    .await;
    anyhow!(text.unwrap_or_else(|_| error.to_string()))
}

fn describe(
    failure: &Failure,
    problems: &[soulbox_doctor::Problem],
    environment: &Environment,
) -> String {
    let Failure { step, message, .. } = failure;
    let mut text = format!("sandboxes cannot run on this machine yet. {step}: {message}");
    if problems.is_empty() && !failure.is_explained {
        let advice = soulbox_doctor::advice(step, message, environment);
        text = format!("{text}; {advice}");
    }
    for problem in problems {
        text = format!("{text}. {problem}");
    }
    format!("{text} (`soulbox doctor` shows every check)")
}

/// Whether a server would find addresses for its sandboxes: one that has a data folder has them.
/// Blocking, and for the host's own network.
pub fn find_addresses(data_dir: &Path) -> Result<(), TrialResult> {
    if data_dir.join("instance.json").exists() {
        return Ok(());
    }
    let found = NetConfig::pick_range(NO_SERVER);
    found.map(drop).map_err(|error| TrialResult::Failed {
        step: "addresses for sandboxes".to_owned(),
        message: error.to_string(),
    })
}

/// Makes and ends a sandbox without a server, in a folder of its own beside the data folder. For a
/// process in a network of its own: links, rules and forwarding of the host's are a server's.
pub async fn try_sandbox(data_dir: &Path) -> TrialResult {
    match try_in_scratch(data_dir).await {
        Ok(Ok(detail)) => TrialResult::Works(detail),
        Ok(Err(error)) => {
            let Failure { step, message, .. } = Failure::from(&error);
            TrialResult::Failed { step, message }
        }
        Err(error) => TrialResult::Failed {
            step: "preparing".to_owned(),
            message: format!("{error:#}"),
        },
    }
}

async fn try_in_scratch(data_dir: &Path) -> anyhow::Result<Result<String, Error>> {
    clear_up(data_dir).await;
    let data_dir = data_dir.to_owned();
    let (scratch, config, template) =
        tokio::task::spawn_blocking(move || prepare(&data_dir)).await??;
    let tried = match Machine::open(config).await {
        Ok(machine) => {
            let tried = try_jail(&machine, &template).await;
            machine.close().await;
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

async fn try_jail(machine: &Arc<Machine>, template: &Template) -> Result<Trial, Error> {
    let jail = Jail::open(Arc::clone(machine))?;
    trial(machine, &*jail, template).await
}

/// What doctors and servers that were killed have left in the data folder, or beside it before there
/// was one: of a sandbox that was tried too, if it came to that.
pub(crate) async fn clear_up(data_dir: &Path) {
    let near = soulbox_doctor::nearest_folder(data_dir);
    let folders: Vec<_> = near.ancestors().take(2).map(Path::to_owned).collect();
    let look = move || -> Vec<_> {
        let left = folders.iter().flat_map(|folder| left_over(folder));
        left.map(|left| (instance(&left), left)).collect()
    };
    for (instance, left) in tokio::task::spawn_blocking(look).await.unwrap_or_default() {
        // Those of an earlier version have no mark.
        if !left.is_marked && instance.is_none() {
            continue;
        }
        if let Some(instance) = instance {
            Machine::remove_traces(&instance).await;
        }
        let removed = tokio::task::spawn_blocking(move || left.remove()).await;
        if let Ok(Err(error)) = removed {
            tracing::warn!(%error, "could not remove what a killed doctor has left");
        }
    }
}

/// In whose name a trial was made.
fn instance(left: &Leftover) -> Option<Instance> {
    let file = left.file(&[INSIDE, "instance.json"])?;
    let mut text = String::new();
    file.take(LONGEST_INSTANCE).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn prepare(data_dir: &Path) -> anyhow::Result<(Scratch, MachineConfig, Template)> {
    let scratch = Scratch::new(data_dir).map_err(|error| anyhow!(error))?;
    let dir = scratch.path().join(INSIDE);
    std::fs::DirBuilder::new().mode(0o700).create(&dir)?;
    let programs = soulbox_guest_programs::install(&dir.join("bin"))?;
    let options = soulbox_host_template::HostOptions {
        include_opt: false,
        sudo: programs.sudo.clone(),
        extra_ca: Vec::new(),
    };
    let template = soulbox_host_template::prepare_host(&dir.join("base"), &options)?;
    let config = MachineConfig {
        sandboxes_dir: dir.join("sandboxes"),
        volumes_dir: dir.join("volumes"),
        programs,
        network_range: None,
        open_ranges: Vec::new(),
        pool: 0,
        max_sandboxes: SLOTS,
        disk_sizes: vec![template.limits.disk_mib],
        data_dir: dir,
    };
    Ok((scratch, config, template))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_its_step_its_cause_and_what_to_do() {
        let error = Error::io(
            "could not set up the network",
            io::Error::other("nft: Operation not supported"),
        );
        let said = describe(&Failure::from(&error), &[], &Environment::default());
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
        let said = describe(&Failure::from(&error), &[problem], &Environment::default());
        assert!(said.contains("no module; modprobe nf_tables"), "{said}");
    }

    #[tokio::test]
    async fn what_killed_doctors_left_goes_and_what_only_looks_like_it_stays() {
        let near = tempfile::tempdir().unwrap();
        let make = |name: &str, inside: &str| {
            let folder = near.path().join(name);
            std::fs::create_dir_all(folder.join(inside)).unwrap();
            folder
        };
        // Killed before anything was in it, with a mark, and by an earlier version.
        let early = make(".soulbox-doctor-aaaaaa", "");
        let marked = make(".soulbox-doctor-bbbbbb", "trial/bin");
        std::fs::write(marked.join(".scratch"), "").unwrap();
        let old = make(".soulbox-doctor-cccccc", "trial");
        let text = r#"{"tag":"fffe","range":"10.255.240.0/20"}"#;
        std::fs::write(old.join("trial/instance.json"), text).unwrap();
        // A data folder of a user, and only the name.
        let data = make(".soulbox-doctor-dddddd", "sandboxes");
        std::fs::write(data.join("instance.json"), text).unwrap();
        let other = make("soulbox", "trial");

        clear_up(&near.path().join("data-folder-to-be")).await;
        for gone in [early, marked, old] {
            assert!(!gone.exists(), "{}", gone.display());
        }
        assert!(data.join("instance.json").exists() && other.join("trial").exists());
    }

    #[test]
    fn a_full_disk_is_no_reason_to_refuse_the_start_where_something_can_be_removed() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let full = Error::io("could not make the sandbox's disk", full);
        assert!(is_full(&full, false, true) && !is_full(&full, false, false));
        let refused = io::Error::from(io::ErrorKind::PermissionDenied);
        let refused = Error::io("could not start soulbox-init", refused);
        assert!(!is_full(&refused, true, true));
        let no_ids = Error::NoCapacity {
            what: "host ids".into(),
            retry_after: std::time::Duration::ZERO,
        };
        assert!(is_full(&no_ids, true, true) && !is_full(&no_ids, false, true));
    }
}
