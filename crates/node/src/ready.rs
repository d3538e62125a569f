//! From running processes to a sandbox that is worth handing out: the template's start command
//! runs, and its ready command has passed.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use soulbox_envd_client::{CommandSpec, EnvdClient, ProcessExit, RemoteProcess, RuntimeDial};
use soulbox_runtime::{Error, Result};
use soulbox_types::{Purpose, SandboxId, SandboxSpec, StartCommand};

use crate::{LocalNode, local::blocking};

/// Between two attempts of the ready command; the last one again and again. Most servers are up
/// within moments, and whoever waits for one that is not does not notice a second.
const PAUSES: [u64; 8] = [20, 50, 100, 200, 400, 700, 1000, 1500];
/// One that nobody waits for yields to others, so it may take so many times as long.
const PATIENCE: u32 = 4;
/// Of what a command wrote, for the error.
const SHOWN: usize = 1000;
/// Not every image has bash. A login shell, as E2B's.
const SHELL: &str =
    r#"if [ -x /bin/bash ]; then exec /bin/bash -l -c "$1"; fi; exec /bin/sh -l -c "$1""#;

impl LocalNode {
    fn start_of(&self, spec: &SandboxSpec) -> Option<StartCommand> {
        // Steps of a build come before there is anything to start.
        if spec.purpose == Purpose::Build {
            return None;
        }
        self.templates().of(spec)?.start.clone()
    }

    /// Whether a start command makes it ready.
    pub(crate) fn starts(&self, spec: &SandboxSpec) -> bool {
        self.start_of(spec).is_some()
    }

    /// The same for a new one, which does not outlive the server before.
    pub(crate) async fn get_ready_on_record(&self, spec: &SandboxSpec) -> Result<()> {
        self.get_ready(spec).await?;
        if !self.starts(spec) {
            return Ok(());
        }
        let folder = self.folder(&spec.id);
        blocking(move || folder.ready()).await
    }

    /// After every start of a sandbox's processes. Bounded, and over at once when the sandbox ends.
    pub(crate) async fn get_ready(&self, spec: &SandboxSpec) -> Result<()> {
        let Some(start) = self.start_of(spec) else {
            return Ok(());
        };
        let ending = {
            let entries = self.entries().lock();
            let entry = entries.get(&spec.id);
            entry
                .ok_or_else(|| Error::SandboxNotFound(spec.id.clone()))?
                .ending
                .clone()
        };
        let dial = RuntimeDial::new(self.runtime(spec.tier)?, spec.id.clone());
        let guest = EnvdClient::new(Arc::new(dial), spec);
        let limit = match spec.purpose {
            Purpose::Warm => self.ready_limit() * PATIENCE,
            Purpose::User | Purpose::Build => self.ready_limit(),
        };
        let gone = || Error::SandboxNotFound(spec.id.clone());
        tokio::select! {
            () = ending.cancelled() => Err(gone()),
            result = start_and_wait(&guest, &spec.id, &start, limit) => result,
        }
    }
}

async fn start_and_wait(
    guest: &EnvdClient,
    id: &SandboxId,
    start: &StartCommand,
    limit: Duration,
) -> Result<()> {
    let begun = Instant::now();
    let mut process = if start.start.is_empty() {
        None
    } else {
        let started = guest.start(&shell(&start.start)).await;
        Some(started.map_err(|error| failed("start command", error.to_string()))?)
    };
    if start.ready.is_empty() {
        return Ok(());
    }
    let mut last = String::from("it was not run");
    let passed = async {
        for pause in PAUSES
            .iter()
            .chain(std::iter::repeat(&PAUSES[PAUSES.len() - 1]))
        {
            let left = limit.saturating_sub(begun.elapsed());
            match attempt(guest, &start.ready, left).await {
                Ok(()) => break,
                Err(why) => last = why,
            }
            tokio::time::sleep(Duration::from_millis(*pause)).await;
        }
    };
    let outcome = tokio::select! {
        () = passed => Ok(()),
        failure = failure_of(&mut process) => Err(failure),
        () = tokio::time::sleep(limit) => {
            Err(failed("ready command", format!("it did not pass within {} s; the last time: {last}", limit.as_secs())))
        }
    };
    tracing::debug!(sandbox_id = %id, took = ?begun.elapsed(), ready = outcome.is_ok(), "start command");
    outcome
}

/// Why the ready command did not pass this time.
async fn attempt(guest: &EnvdClient, ready: &str, limit: Duration) -> Result<(), String> {
    let mut output = Vec::new();
    let mut keep = |_, bytes: &[u8]| {
        output.extend_from_slice(bytes);
        let extra = output.len().saturating_sub(SHOWN);
        output.drain(..extra);
    };
    match guest.run(&shell(ready), &mut keep, limit).await {
        Ok(exit) if exit.is_success() => Ok(()),
        Ok(exit) => Err(with_output(exit.to_string(), &output)),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns when the start command has failed. One that ends well has done its work.
async fn failure_of(process: &mut Option<RemoteProcess>) -> Error {
    if let Some(process) = process {
        match process.exited().await {
            Ok(ProcessExit::Code(0)) => {}
            Ok(exit) => {
                let tail = process.tail();
                return failed(
                    "start command",
                    with_output(format!("it ended with {exit}"), tail.as_bytes()),
                );
            }
            Err(error) => return failed("start command", error.to_string()),
        }
    }
    std::future::pending().await
}

fn shell(script: &str) -> CommandSpec {
    CommandSpec {
        program: "/bin/sh".to_owned(),
        args: ["-c", SHELL, "sh", script].map(str::to_owned).to_vec(),
        ..CommandSpec::default()
    }
}

fn failed(step: &str, message: String) -> Error {
    Error::Start {
        step: step.to_owned(),
        message,
    }
}

/// Bytes from inside: shown, bounded.
fn with_output(text: String, output: &[u8]) -> String {
    let start = output.len().saturating_sub(SHOWN);
    let output = String::from_utf8_lossy(&output[start..]);
    match output.trim() {
        "" => text,
        output => format!("{text}: {output}"),
    }
}
