//! Starting `soulbox-init` and hearing from it.

use std::{io, os::fd::OwnedFd, sync::Arc, time::Duration};

use rustix::{
    pipe::{PipeFlags, pipe_with},
    process::{Pid, WaitOptions, waitpid},
};
use soulbox_runtime::{Error, Result};
use soulbox_types::guest::{InitSpec, InitStatus, PreparedSpec};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Take},
    net::unix::pipe::{Receiver, Sender},
    time::timeout,
};

use crate::{
    blocking::blocking,
    fork_server::{ForkServer, Unforked},
    process::FirstProcess,
};

/// From the start of init to envd's first breath. Tens of milliseconds are usual; a machine under
/// memory pressure may need seconds.
const START_LIMIT: Duration = Duration::from_secs(20);
const NO_ROOM_RETRY: Duration = Duration::from_secs(2);
/// More than init and envd ever say before the sandbox is ready.
const MAX_STATUS_BYTES: u64 = 64 << 10;

/// A `soulbox-init` that has everything but a sandbox to become. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Parked {
    init: Init,
    spec: Sender,
    status: Status,
}

type Status = BufReader<Take<Receiver>>;

/// It is killed when this is dropped.
#[derive(Debug)]
struct Init(FirstProcess);

impl Drop for Init {
    fn drop(&mut self) {
        if !self.0.has_exited()
            && let Err(error) = self.0.kill()
        {
            tracing::warn!(%error, "a soulbox-init could not be killed");
        }
    }
}

/// A sandbox whose first process exists; envd may not be ready yet.
#[derive(Debug)]
pub struct Launched {
    pub pid: i32,
    /// The kernel's name of the device that its disk is on.
    pub disk: String,
    init: Init,
    status: Status,
}

/// Returns when init waits in its prepared slot.
pub(crate) async fn park(inits: &Arc<ForkServer>, prepared: &PreparedSpec) -> Result<Parked> {
    timeout(START_LIMIT, park_unbounded(inits, prepared))
        .await
        .map_err(|_| too_long())?
}

/// A new init, what it reads and what it writes.
async fn start(inits: &Arc<ForkServer>) -> Result<(Init, Sender, Receiver)> {
    let inits = Arc::clone(inits);
    // Not given up half-way: whoever is forked is watched by us, and so killed and reaped.
    blocking(move || {
        start_once(&inits)
            .or_else(|unforked| match unforked {
                Unforked::ServerGone(_) => start_once(&inits),
                Unforked::Failed(_) => Err(unforked),
            })
            .map_err(|unforked| no_init(unforked.into_io()))
    })
    .await
}

/// Blocking.
fn start_once(inits: &ForkServer) -> Result<(Init, Sender, Receiver), Unforked> {
    let (input, output, theirs) = streams().map_err(Unforked::Failed)?;
    let pid = inits.fork(&theirs.0, &theirs.1)?;
    let found = FirstProcess::find(pid, None);
    if let Ok(Some(process)) = found {
        return Ok((Init(process), input, output));
    }
    // Ours, and dead or about to be: its input is closed.
    drop((input, output));
    if let Some(pid) = Pid::from_raw(pid) {
        waitpid(Some(pid), WaitOptions::empty()).map_err(|e| Unforked::Failed(e.into()))?;
    }
    let died = || io::Error::other("it died at once");
    Err(Unforked::Failed(found.err().unwrap_or_else(died)))
}

/// What we write and read, and the other ends of both.
fn streams() -> io::Result<(Sender, Receiver, (OwnedFd, OwnedFd))> {
    let (their_input, input) = pipe_with(PipeFlags::CLOEXEC)?;
    let (output, their_output) = pipe_with(PipeFlags::CLOEXEC)?;
    let (input, output) = (
        Sender::from_owned_fd(input)?,
        Receiver::from_owned_fd(output)?,
    );
    Ok((input, output, (their_input, their_output)))
}

/// A machine without process ids or memory for one more has no room: that passes.
fn no_init(error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::ENOMEM) => Error::NoCapacity {
            what: "the machine has no process ids or memory for another process".to_owned(),
            retry_after: NO_ROOM_RETRY,
        },
        _ => failed(error),
    }
}

async fn park_unbounded(inits: &Arc<ForkServer>, prepared: &PreparedSpec) -> Result<Parked> {
    let mut text = serde_json::to_vec(prepared).map_err(|e| failed(io::Error::other(e)))?;
    text.push(b'\n');
    let (init, mut spec, output) = start(inits).await?;
    // When init fails early it does not read on; its status says why.
    let _closed_early = spec.write_all(&text).await;
    let mut status = BufReader::new(output.take(MAX_STATUS_BYTES));
    let line = next_line(&mut status).await?;
    match parse(&line)? {
        InitStatus::Waiting => Ok(Parked { init, spec, status }),
        InitStatus::Failed { step, message } => Err(Error::Start { step, message }),
        InitStatus::Started { .. } | InitStatus::Exported { .. } => Err(unexpected(&line)),
    }
}

impl Parked {
    pub(crate) fn is_alive(&self) -> bool {
        !self.init.0.has_exited()
    }

    /// Ends it, and returns when it is gone.
    pub(crate) async fn leave(self) {
        let Self { init, spec, .. } = self;
        drop(spec);
        if timeout(START_LIMIT, init.0.exited()).await.is_err() {
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
        let text = serde_json::to_vec(spec).map_err(|e| failed(io::Error::other(e)))?;
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

fn failed(source: io::Error) -> Error {
    Error::io("could not start soulbox-init", source)
}

impl Launched {
    /// Returns when envd accepts connections.
    pub async fn ready(mut self) -> Result<()> {
        let line = timeout(START_LIMIT, next_line(&mut self.status))
            .await
            .map_err(|_| too_long())??;
        if line != "\n" {
            return match parse(&line)? {
                InitStatus::Failed { step, message } => Err(Error::Start { step, message }),
                _ => Err(unexpected(&line)),
            };
        }
        timeout(START_LIMIT, self.init.0.exited())
            .await
            .map(drop)
            .map_err(|_| too_long())
    }
}

async fn next_line(status: &mut Status) -> Result<String> {
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
        what: "starting the sandbox".into(),
        limit: START_LIMIT,
    }
}
