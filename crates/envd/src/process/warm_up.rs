//! Warm-up: runs a program once before the user's first command, so that this one is fast.
//!
//! The first start in a sandbox finds the kernel's caches of its root empty: names are looked up
//! through all layers, pages are mapped for the first time. A sandbox in the warm pool has time to
//! do that in advance.

use std::{io, time::Duration};

use rustix::io::Errno;
use tokio::{io::Interest, time::timeout};

use super::{
    StartError,
    command::Command,
    spawn::{self, Stdio, StdioEnds},
    start::executed,
};
use crate::{paths, poll::pollable, proto::process::ProcessConfig, state::Envd, users::User};

const LIMIT: Duration = Duration::from_secs(5);

/// Leaves no trace: no log line, no entry in the process table. It reads no start-up file, which
/// could have side effects that should happen only once.
pub(crate) async fn warm_up(envd: &Envd, user: &User) -> Result<(), StartError> {
    let config = ProcessConfig {
        cmd: "/bin/bash".to_owned(),
        args: ["--noprofile", "--norc", "-c", "/bin/true"]
            .map(str::to_owned)
            .into(),
        ..ProcessConfig::default()
    };
    let cwd = paths::resolve("/", user, "/")?;
    let env = envd.settings.borrow().env();
    let command = Command::new(&config, user, &cwd, &envd.path, env, envd.descriptors)?;
    let failed = |error| StartError::Spawn(config.cmd.clone(), error);
    // The reaper collects it like any orphan: it is in no table.
    let child = spawn::spawn(&command, &Stdio::Pipes { stdin: false }).map_err(failed)?;
    executed(child.exec_status).await.map_err(failed)?;
    match timeout(LIMIT, closed(child.ends)).await {
        Ok(closed) => closed.map_err(failed),
        Err(_) => Err(failed(io::ErrorKind::TimedOut.into())),
    }
}

/// Its output ends with it.
async fn closed(ends: StdioEnds) -> io::Result<()> {
    let StdioEnds::Pipes { stdout, stderr, .. } = ends else {
        return Ok(());
    };
    for fd in [stdout, stderr] {
        let stream = pollable(fd)?;
        let mut ignored = [0; 256];
        loop {
            let read = stream.async_io(Interest::READABLE, |fd| {
                Ok(
                    rustix::io::read(fd, &mut ignored).or_else(|error| match error {
                        Errno::IO => Ok(0),
                        other => Err(other),
                    })?,
                )
            });
            if read.await? == 0 {
                break;
            }
        }
    }
    Ok(())
}
