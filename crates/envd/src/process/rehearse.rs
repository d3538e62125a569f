//! Running a program that nobody asked for, so that the first one that somebody asks for is quick.
//!
//! The first start in a sandbox finds nothing in the kernel's memory of its root: names are looked
//! up through all layers, pages are mapped for the first time. A sandbox that waits for a user has
//! the time to have that behind it.

use std::{io, time::Duration};

use rustix::io::Errno;
use tokio::{io::Interest, time::timeout};

use super::{
    StartError,
    command::Command,
    spawn::{self, Ends, Stdio},
    start::executed,
};
use crate::{paths, poll::pollable, proto::process::ProcessConfig, state::Envd, users::User};

const LIMIT: Duration = Duration::from_secs(5);

/// Without a trace: no log line, no entry among the processes. It reads no start-up file, which
/// could do things that should happen once.
pub(crate) async fn rehearse(envd: &Envd, user: &User) -> Result<(), StartError> {
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
async fn closed(ends: Ends) -> io::Result<()> {
    let Ends::Pipes { stdout, stderr, .. } = ends else {
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
