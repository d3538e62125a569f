//! Runs a program of the system, within bounds.

use std::{
    io::Read,
    process::{Command as Process, Stdio},
    time::{Duration, Instant},
};

use crate::{Command, Error, Result};

/// `update-ca-certificates` takes seconds on a small machine.
const LIMIT: Duration = Duration::from_mins(2);
const LOOK_EVERY: Duration = Duration::from_millis(20);
const SHOWN: u64 = 4096;

pub fn run(command: &Command) -> Result<()> {
    let failed = |problem: String| Error::Command {
        command: command.to_string(),
        problem,
    };
    let mut child = Process::new(&command.program)
        .args(&command.arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    let said = child.stderr.take().map(|stderr| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            let mut stderr = stderr;
            (&mut stderr).take(SHOWN).read_to_end(&mut text).ok();
            // A full pipe would stop it.
            std::io::copy(&mut stderr, &mut std::io::sink()).ok();
            String::from_utf8_lossy(&text).trim().to_owned()
        })
    });
    let end = Instant::now() + LIMIT;
    let status = loop {
        match child
            .try_wait()
            .map_err(|error| failed(error.to_string()))?
        {
            Some(status) => break status,
            None if Instant::now() >= end => {
                child.kill().ok();
                child.wait().ok();
                return Err(failed(format!(
                    "it did not end within {} s",
                    LIMIT.as_secs()
                )));
            }
            None => std::thread::sleep(LOOK_EVERY),
        }
    };
    if status.success() {
        return Ok(());
    }
    let said = said
        .and_then(|thread| thread.join().ok())
        .unwrap_or_default();
    Err(failed(if said.is_empty() {
        status.to_string()
    } else {
        said
    }))
}
