use std::{io::IsTerminal, path::Path, process::Stdio, time::Duration};

use anyhow::{Context, Result, anyhow};
use soulbox_doctor::{DoctorOptions, TrialResult};
use tokio::{process::Command, time::timeout};

use crate::{args::DoctorArgs, output};

/// The hidden subcommand that [`trial`] serves.
pub(crate) const TRIAL_COMMAND: &str = "doctor-trial";
/// Seconds are usual; an emulated machine takes half a minute.
const TRIAL_LIMIT: Duration = Duration::from_mins(3);

pub(super) async fn run(args: DoctorArgs) -> Result<u8> {
    soulbox_doctor::file_size_limit().map_err(|problem| anyhow!(problem.to_string()))?;
    let data_dir = std::path::absolute(args.data_dir)?;
    // Without root nothing that needs it is tried: it would fail for that reason alone.
    let sandbox = if rustix::process::geteuid().is_root() {
        if std::io::stderr().is_terminal() {
            eprintln!("starting a sandbox, which takes some seconds …");
        }
        match soulbox_server::find_addresses(&data_dir) {
            Ok(()) => try_in_child(&data_dir).await.unwrap_or_else(|error| {
                let step = "a process for the trial".to_owned();
                let message = format!("{error:#}");
                TrialResult::Failed { step, message }
            }),
            Err(none) => none,
        }
    } else {
        TrialResult::Not("needs root".into())
    };
    let https = args.https.address().map(|address| (address, "--https"));
    let admin = args.admin.address().map(|address| (address, "--admin"));
    let addresses = [Some((args.listen, "--listen")), https, admin];
    let options = DoctorOptions {
        data_dir,
        min_free_disk: u64::from(args.min_free_disk_mb) << 20,
        thorough: !args.quick,
        addresses: addresses.into_iter().flatten().collect(),
        sandbox,
    };
    let report = tokio::task::spawn_blocking(move || soulbox_doctor::run(&options)).await?;
    if args.json {
        output::json(&report)?;
    } else {
        output::text(report.render().trim_end())?;
    }
    Ok(u8::from(!report.usable()))
}

/// In a process of its own, whose network is not the host's.
async fn try_in_child(data_dir: &Path) -> Result<TrialResult> {
    let trial = Command::new("/proc/self/exe")
        .arg(TRIAL_COMMAND)
        .arg(data_dir)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        // Ctrl-C is for us; it ends what it has begun.
        .process_group(0)
        .kill_on_drop(true)
        .output();
    let done = timeout(TRIAL_LIMIT, trial)
        .await
        .with_context(|| format!("it took longer than {} s", TRIAL_LIMIT.as_secs()))??;
    serde_json::from_slice(&done.stdout).context("it ended without an answer")
}

/// Serves the hidden subcommand. Call it before any thread is started.
pub(crate) fn trial(data_dir: &Path) -> Result<()> {
    let tried = match soulbox_sys::enter_new_network() {
        Ok(()) => tokio::runtime::Runtime::new()?.block_on(soulbox_server::try_sandbox(data_dir)),
        Err(error) => TrialResult::Failed {
            step: "network namespace".to_owned(),
            message: error.to_string(),
        },
    };
    output::json(&tried)
}
