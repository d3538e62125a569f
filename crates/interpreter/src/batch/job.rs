//! One process with limits: time, output, and nothing left behind.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    pipe::{PipeFlags, pipe_with},
    process::{Pid, Signal, kill_process},
};
use serde::Serialize;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::unix::pipe::{Receiver, Sender},
    time::timeout,
};

use super::account::Account;
use crate::kernel::{Exit, Process};

/// A descendant that left the group may hold a pipe open.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Marks every descendant, however it detached itself.
const MARK: &str = "SOULBOX_RUN";

pub(super) struct Job {
    pub(super) command: Vec<String>,
    pub(super) cwd: PathBuf,
    pub(super) env: BTreeMap<String, String>,
    pub(super) account: Account,
    pub(super) stdin: String,
    pub(super) time: Duration,
    pub(super) output: usize,
}

#[derive(Debug, Serialize, PartialEq, Eq)]
pub(crate) struct Step {
    /// Absent when a signal ended it.
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) time_ms: u64,
    pub(crate) timed_out: bool,
    /// Some output was left out.
    pub(crate) truncated: bool,
}

impl Job {
    pub(super) async fn run(self) -> io::Result<Step> {
        let (program, arguments) = self
            .command
            .split_first()
            .ok_or(io::ErrorKind::InvalidInput)?;
        let (input, input_sink) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stdout_source, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stderr_source, stderr) = pipe_with(PipeFlags::CLOEXEC)?;
        let mark = uuid::Uuid::new_v4().simple().to_string();
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(&self.cwd)
            .env_clear()
            .envs(&self.env)
            .env(MARK, &mark)
            .stdin(Stdio::from(input))
            .stdout(Stdio::from(stdout))
            .stderr(Stdio::from(stderr))
            .process_group(0);
        if let Some((uid, gid)) = self.account.ids {
            command.uid(uid).gid(gid);
        }
        let started = Instant::now();
        let sweeper = Sweeper(format!("{MARK}={mark}"));
        let process = Process::adopt(&command.spawn()?)?;
        // Ours of the child's ends go, or no pipe would ever end.
        drop(command);
        let mut stdout = Captured::new(stdout_source, self.output)?;
        let mut stderr = Captured::new(stderr_source, self.output)?;
        let feed = feed(Sender::from_owned_fd(input_sink)?, self.stdin.as_bytes());

        let mut timed_out = false;
        let exit = {
            let mut work =
                std::pin::pin!(async { tokio::join!(stdout.read(), stderr.read(), feed) });
            let mut deadline = std::pin::pin!(tokio::time::sleep(self.time));
            let mut closed = false;
            let exit = loop {
                tokio::select! {
                    exit = process.exited() => break exit,
                    _ = &mut work, if !closed => closed = true,
                    () = &mut deadline, if !timed_out => {
                        timed_out = true;
                        process.end();
                    }
                }
            };
            drop(sweeper);
            if !closed {
                let _held_open = timeout(LAST_WORDS, work).await;
            }
            exit
        };
        let (exit_code, signal) = match exit {
            Exit::Code(code) => (Some(code), None),
            Exit::Signal(signal) => (None, Some(signal)),
        };
        Ok(Step {
            exit_code,
            signal,
            truncated: stdout.truncated || stderr.truncated,
            stdout: stdout.text(),
            stderr: stderr.text(),
            time_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
            timed_out,
        })
    }
}

async fn feed(mut sink: Sender, bytes: &[u8]) {
    let _closed_early = sink.write_all(bytes).await;
}

/// The beginning of a stream; the rest is read and thrown away, so that the program can go on.
struct Captured {
    source: Receiver,
    kept: Vec<u8>,
    limit: usize,
    truncated: bool,
}

impl Captured {
    fn new(source: std::os::fd::OwnedFd, limit: usize) -> io::Result<Self> {
        Ok(Self {
            source: Receiver::from_owned_fd(source)?,
            kept: Vec::new(),
            limit,
            truncated: false,
        })
    }

    async fn read(&mut self) {
        let mut chunk = vec![0; 16 << 10];
        while let Ok(length @ 1..) = self.source.read(&mut chunk).await {
            let room = self.limit - self.kept.len();
            self.kept.extend_from_slice(&chunk[..length.min(room)]);
            self.truncated |= length > room;
        }
    }

    fn text(self) -> String {
        String::from_utf8_lossy(&self.kept).into_owned()
    }
}

/// Ends what left the process group, by the variable that every descendant inherits.
struct Sweeper(String);

impl Drop for Sweeper {
    fn drop(&mut self) {
        const ROUNDS: usize = 5;
        for _ in 0..ROUNDS {
            let left = marked(&self.0);
            if left.is_empty() {
                return;
            }
            for pid in left {
                let _gone = kill_process(pid, Signal::KILL);
            }
        }
    }
}

fn marked(mark: &str) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
        .filter(|pid| {
            fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).is_ok_and(|text| {
                text.split(|byte| *byte == 0)
                    .any(|word| word == mark.as_bytes())
            })
        })
        .collect()
}
