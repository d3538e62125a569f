//! Starting `soulbox-init` and hearing from it.

use std::{path::Path, process::Stdio, time::Duration};

use soulbox_runtime::{Error, Result};
use soulbox_types::guest::{BerthSpec, InitSpec, InitStatus};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Take},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

/// From the start of init to envd's first breath. Tens of milliseconds are usual; a machine under
/// memory pressure may need seconds.
const START_LIMIT: Duration = Duration::from_secs(20);
/// More than init and envd ever say before the sandbox is ready.
const MAX_STATUS_BYTES: u64 = 64 << 10;

/// A `soulbox-init` that has everything but a sandbox to become. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Parked {
    init: Child,
    spec: ChildStdin,
    status: BufReader<Take<ChildStdout>>,
}

/// A sandbox whose first process exists; envd may not be ready yet.
#[derive(Debug)]
pub(crate) struct Launched {
    pub(crate) pid: i32,
    /// The kernel's name of the device that its disk is on.
    pub(crate) disk: String,
    init: Child,
    status: BufReader<Take<ChildStdout>>,
}

/// Returns when init waits in its berth.
pub(crate) async fn park(init: &Path, berth: &BerthSpec) -> Result<Parked> {
    timeout(START_LIMIT, park_unbounded(init, berth))
        .await
        .map_err(|_| too_long())?
}

async fn park_unbounded(init: &Path, berth: &BerthSpec) -> Result<Parked> {
    let mut text = serde_json::to_vec(berth).map_err(|e| failed(std::io::Error::other(e)))?;
    text.push(b'\n');
    // No pre_exec here: the standard library then uses posix_spawn, which does not copy the
    // server's page tables.
    let mut init = Command::new(init)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // What it has to say comes as status; this is for its panics.
        .stderr(Stdio::inherit())
        // Ctrl-C at the server's terminal is for the server.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let no_pipe = || failed(std::io::Error::other("no pipe"));
    let mut spec = init.stdin.take().ok_or_else(no_pipe)?;
    let stdout = init.stdout.take().ok_or_else(no_pipe)?;
    // When init fails early it does not read on; its status says why.
    let _closed_early = spec.write_all(&text).await;
    let mut status = BufReader::new(stdout.take(MAX_STATUS_BYTES));
    let line = next_line(&mut status).await?;
    match parse(&line)? {
        InitStatus::Waiting => Ok(Parked { init, spec, status }),
        InitStatus::Failed { step, message } => Err(Error::Start { step, message }),
        InitStatus::Started { .. } | InitStatus::Exported { .. } => Err(unexpected(&line)),
    }
}

impl Parked {
    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.init.try_wait(), Ok(None))
    }

    /// Ends it, and returns when it is gone.
    pub(crate) async fn leave(self) {
        let Self { mut init, spec, .. } = self;
        drop(spec);
        if timeout(START_LIMIT, init.wait()).await.is_err() {
            tracing::warn!("a waiting soulbox-init does not end; it is killed");
        }
    }

    /// `None`: it was killed before it could begin, or say why it does not.
    pub(crate) async fn launch(self, spec: &InitSpec) -> Result<Option<Launched>> {
        timeout(START_LIMIT, self.launch_unbounded(spec))
            .await
            .map_err(|_| too_long())?
    }

    async fn launch_unbounded(self, spec: &InitSpec) -> Result<Option<Launched>> {
        let Self {
            init,
            spec: mut stdin,
            mut status,
        } = self;
        let text = serde_json::to_vec(spec).map_err(|e| failed(std::io::Error::other(e)))?;
        let _closed_early = stdin.write_all(&text).await;
        drop(stdin);
        let line = next_line(&mut status).await?;
        if line.is_empty() {
            return Ok(None);
        }
        match parse(&line)? {
            InitStatus::Started { pid, disk } => Ok(Some(Launched {
                pid,
                disk,
                init,
                status,
            })),
            InitStatus::Failed { step, message } => Err(Error::Start { step, message }),
            InitStatus::Waiting | InitStatus::Exported { .. } => Err(unexpected(&line)),
        }
    }
}

fn failed(source: std::io::Error) -> Error {
    Error::io("could not start soulbox-init", source)
}

impl Launched {
    /// Returns when envd accepts connections.
    pub(crate) async fn ready(mut self) -> Result<()> {
        let line = timeout(START_LIMIT, next_line(&mut self.status))
            .await
            .map_err(|_| too_long())??;
        if line != "\n" {
            return match parse(&line)? {
                InitStatus::Failed { step, message } => Err(Error::Start { step, message }),
                _ => Err(unexpected(&line)),
            };
        }
        let exited = timeout(START_LIMIT, self.init.wait())
            .await
            .map_err(|_| too_long())?;
        exited
            .map(drop)
            .map_err(|e| Error::io("could not wait for soulbox-init", e))
    }
}

async fn next_line(status: &mut BufReader<Take<ChildStdout>>) -> Result<String> {
    let mut line = String::new();
    status
        .read_line(&mut line)
        .await
        .map_err(|e| Error::io("could not hear from soulbox-init", e))?;
    Ok(line)
}

fn parse(line: &str) -> Result<InitStatus> {
    serde_json::from_str(line).map_err(|_| unexpected(line))
}

fn unexpected(line: &str) -> Error {
    if line.is_empty() {
        return without_a_word();
    }
    Error::Start {
        step: "soulbox-init".to_owned(),
        message: format!("it said {line:?}"),
    }
}

pub(crate) fn without_a_word() -> Error {
    let message = "it ended without a word; what it said last is in the server's standard error";
    Error::Start {
        step: "soulbox-init".to_owned(),
        message: message.to_owned(),
    }
}

fn too_long() -> Error {
    Error::Timeout {
        what: "starting the sandbox",
        limit: START_LIMIT,
    }
}
