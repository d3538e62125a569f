//! A server of our own: a child that ends when we do.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use soulbox_client::{Client, Config, config::Flags};
use tokio::{
    process::{Child, Command},
    time::sleep,
};

use super::ending::stalled;
use crate::{Error, Progress};

/// The hidden command that serves until its standard input closes, then ends its sandboxes and
/// removes its data folder. Its arguments are those of `serve`.
pub const SERVER_COMMAND: &str = "bench-server";

/// A first start prepares the base template.
const READY_LIMIT: Duration = Duration::from_mins(2);
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// How long it may take although no sandbox ends: longer than the server itself goes on then, and
/// its start that is not to be finished takes.
pub(crate) const STOP_LIMIT: Duration = Duration::from_mins(3);
/// Of the server's log, what an error shows.
const SHOWN: usize = 5;

#[derive(Debug)]
pub(crate) struct OwnServer {
    pub(crate) client: Client,
    pub(crate) data: PathBuf,
    pub(crate) pid: u32,
    /// Dropping it closes the pipe, which ends the server.
    child: Child,
}

impl OwnServer {
    /// Returns when it answers.
    pub(crate) async fn start(
        program: &Path,
        data: PathBuf,
        arguments: Vec<String>,
    ) -> Result<Self, Error> {
        let spawn = |source| Error::Spawn {
            program: program.to_owned(),
            source,
        };
        let mut log = tempfile::tempfile().map_err(spawn)?;
        let mut child = command(program, &data, &arguments, &log)
            .and_then(|mut command| command.spawn())
            .map_err(spawn)?;
        let begun = Instant::now();
        let client = loop {
            if let Ok(Some(_)) = child.try_wait() {
                return Err(Error::Ended {
                    said: tail(&mut log),
                });
            }
            if let Some(client) = answering(&data).await? {
                break client;
            }
            if begun.elapsed() > READY_LIMIT {
                return Err(Error::Late {
                    limit: READY_LIMIT,
                    said: tail(&mut log),
                });
            }
            sleep(LOOK_AGAIN).await;
        };
        let pid = child.id().ok_or_else(|| Error::Ended {
            said: tail(&mut log),
        })?;
        Ok(Self {
            client,
            data,
            pid,
            child,
        })
    }

    /// Waits until it has ended its sandboxes, and itself.
    pub(crate) async fn stop(mut self, progress: &dyn Progress) {
        drop(self.child.stdin.take());
        let mut all = 0;
        let report = |left: usize| {
            all = all.max(left);
            if all > 0 {
                progress.step("ending", "sandboxes", all - left, all);
            }
        };
        tokio::select! {
            _ = self.child.wait() => return,
            () = stalled(&self.data, STOP_LIMIT, report) => {}
        }
        // What it has stays, but there is no other way.
        self.child.kill().await.ok();
    }
}

fn command(program: &Path, data: &Path, arguments: &[String], log: &File) -> io::Result<Command> {
    let mut command = Command::new(program);
    // What steers our own client or another server must not steer this one.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("SOULBOX_") || text.starts_with("E2B_") {
            command.env_remove(&name);
        }
    }
    command
        .arg(SERVER_COMMAND)
        .arg("--data-dir")
        .arg(data)
        .args(arguments)
        // A Ctrl-C on the terminal is for us; the server follows when we have ended our requests.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(log.try_clone()?)
        .stderr(log.try_clone()?);
    Ok(command)
}

/// The server writes its key and address when it is about to serve.
async fn answering(data: &Path) -> Result<Option<Client>, Error> {
    if !data.join("env").exists() {
        return Ok(None);
    }
    let flags = Flags {
        data_dir: Some(data.to_owned()),
        ..Flags::default()
    };
    let config = Config::resolve(&flags, |_| None)?;
    let client = Client::new(&config, None);
    Ok(client.list_newest(1).await.is_ok().then_some(client))
}

fn tail(log: &mut File) -> String {
    let mut text = Vec::new();
    let read = log
        .seek(SeekFrom::Start(0))
        .and_then(|_| log.read_to_end(&mut text));
    if read.is_err() {
        return "its log cannot be read".to_owned();
    }
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(SHOWN)..].join("\n")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn of_a_log_the_last_lines_are_shown() {
        let mut log = tempfile::tempfile().unwrap();
        for line in 1..=9 {
            writeln!(log, "line {line}\n").unwrap();
        }
        assert_eq!(tail(&mut log), "line 5\nline 6\nline 7\nline 8\nline 9");
    }

    #[tokio::test]
    async fn a_server_that_ends_at_once_is_told_with_what_it_said() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("server");
        std::fs::write(&program, "#!/bin/sh\necho no root >&2\nexit 1\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
        let data = folder.path().join("data");
        let error = OwnServer::start(&program, data, Vec::new()).await;
        let Err(Error::Ended { said }) = error else {
            panic!("{error:?}");
        };
        assert_eq!(said, "no root");
    }
}
