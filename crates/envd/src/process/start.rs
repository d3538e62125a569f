//! Starting a process, and what happens when it is over.

use std::{io, os::fd::OwnedFd, rc::Rc, time::Duration};

use tokio::{io::unix::AsyncFd, time::Instant};

use super::{
    command::{self, Command},
    pump::pump,
    running::Process,
    shortage,
    spawn::{self, REPORT, Stdio, StdioEnds},
};
use crate::{
    memory, paths,
    poll::pollable,
    proto::{
        OutputStream,
        process::{PtySize, StartRequest},
    },
    state::Envd,
    users::User,
};

/// How long an ended process can still be asked about.
const RETENTION: Duration = Duration::from_secs(30);
/// Loading a program from a slow disk may take a while, but not for ever.
const EXEC_TIMEOUT: Duration = Duration::from_secs(30);
const DEFAULT_SIZE: PtySize = PtySize { cols: 80, rows: 24 };

#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("cwd '{0}' does not exist")]
    NoDirectory(String),
    #[error("{0}")]
    Path(#[from] paths::Error),
    #[error("error starting process: {0}")]
    Command(#[from] command::Error),
    #[error("error starting process '{0}': {1}")]
    Spawn(String, #[source] io::Error),
}

/// Starts what the request says, as `user`. At the deadline it is killed, whoever listens.
pub(crate) async fn start(
    envd: &Rc<Envd>,
    request: StartRequest,
    user: &User,
    deadline: Option<Instant>,
) -> Result<Rc<Process>, StartError> {
    let config = request.process.unwrap_or_default();
    let workdir = envd.default_workdir();
    let cwd = paths::resolve(config.cwd.as_deref().unwrap_or_default(), user, &workdir)?;
    if !cwd.is_dir() {
        return Err(StartError::NoDirectory(cwd.display().to_string()));
    }
    let global_env = envd.settings.borrow().env();
    let command = Command::new(
        &config,
        user,
        &cwd,
        &envd.path,
        global_env,
        envd.descriptors,
    )?;
    let stdio = match request.pty {
        Some(pty) => {
            let (cols, rows) = size(pty.size.as_ref().unwrap_or(&DEFAULT_SIZE));
            Stdio::Terminal { cols, rows }
        }
        None => Stdio::Pipes {
            stdin: request.stdin.unwrap_or(true),
        },
    };

    let failed = |error| StartError::Spawn(config.cmd.clone(), error);
    let shortages_before = shortage::deaths();
    // No await from here until the pid is in the table: the reaper must find it there.
    let child = spawn::spawn(&command, &stdio).map_err(failed)?;
    let handles = match Handles::new(child.ends) {
        Ok(handles) => handles,
        Err(error) => {
            let _gone = rustix::process::kill_process(child.pid, rustix::process::Signal::KILL);
            return Err(failed(error));
        }
    };
    let process = Rc::new(Process::new(
        (child.pid, child.group),
        config.clone(),
        request.tag,
        Rc::clone(&envd.processes.budget),
        handles.stdin,
        handles.terminal,
        shortages_before,
    ));
    envd.processes.insert(&process);

    if let Err(error) = executed(child.exec_status).await {
        process.kill();
        envd.processes.remove(&process);
        return Err(failed(error));
    }
    process.started.set(true);
    envd.logs.info(
        "process",
        "process started",
        [
            ("event_type", "process_start".to_owned()),
            ("pid", process.id().to_string()),
            ("user", user.name.clone()),
            ("command", command_line(&process)),
            ("tag", process.tag.clone().unwrap_or_default()),
        ],
    );
    for (fd, stream) in handles.outputs {
        let (envd, process) = (Rc::clone(envd), Rc::clone(&process));
        tokio::task::spawn_local(async move {
            pump(Rc::clone(&process), fd, stream).await;
            process.stream_closed();
            finish_if_complete(&envd, &process);
        });
    }
    if let Some(deadline) = deadline {
        let process = Rc::clone(&process);
        tokio::task::spawn_local(async move {
            if tokio::time::timeout_at(deadline, process.ended())
                .await
                .is_err()
            {
                process.kill();
            }
        });
    }
    Ok(process)
}

/// Terminal sizes are 16 bits wide.
pub(crate) fn size(size: &PtySize) -> (u16, u16) {
    let clamp = |n: u32| u16::try_from(n).unwrap_or(u16::MAX);
    (clamp(size.cols), clamp(size.rows))
}

/// Called after each thing that the end waits for: the death, and each stream's close.
pub(super) fn finish_if_complete(envd: &Rc<Envd>, process: &Rc<Process>) {
    if !process.started.get() || !process.try_end() {
        return;
    }
    if let Some(exit) = process.end() {
        let event = exit.event();
        envd.logs.info(
            "process",
            "process ended",
            [
                ("event_type", "process_end".to_owned()),
                ("pid", process.id().to_string()),
                ("exit_code", event.exit_code.to_string()),
                ("status", event.error.unwrap_or(event.status)),
            ],
        );
    }
    envd.processes.retain_ended(process);
    let (envd, process) = (Rc::clone(envd), Rc::clone(process));
    tokio::task::spawn_local(async move {
        tokio::time::sleep(RETENTION).await;
        envd.processes.forget(&process);
        drop(process);
        memory::trim_later(&envd);
    });
}

fn command_line(process: &Process) -> String {
    let config = &process.config;
    std::iter::once(&config.cmd)
        .chain(&config.args)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Waits for the exec: the status pipe is closed by it, or brings the reason why not.
pub(super) async fn executed(status: OwnedFd) -> io::Result<()> {
    let status = pollable(status)?;
    let mut report = [0; REPORT];
    let read = status.async_io(tokio::io::Interest::READABLE, |fd| {
        Ok(rustix::io::read(fd, &mut report)?)
    });
    match tokio::time::timeout(EXEC_TIMEOUT, read).await {
        Ok(Ok(0)) => Ok(()),
        Ok(Ok(_)) => Err(spawn::describe(report)),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the program did not load",
        )),
    }
}

type Handle = Rc<AsyncFd<OwnedFd>>;

/// Our ends of the streams, known to the event loop.
struct Handles {
    stdin: Option<Handle>,
    terminal: Option<Handle>,
    outputs: Vec<(Handle, OutputStream)>,
}

impl Handles {
    fn new(ends: StdioEnds) -> io::Result<Self> {
        let handle = |fd| pollable(fd).map(Rc::new);
        Ok(match ends {
            StdioEnds::Pipes {
                stdin,
                stdout,
                stderr,
            } => Self {
                stdin: stdin.map(handle).transpose()?,
                terminal: None,
                outputs: vec![
                    (handle(stdout)?, OutputStream::Stdout),
                    (handle(stderr)?, OutputStream::Stderr),
                ],
            },
            StdioEnds::Terminal { master } => {
                let master = handle(master)?;
                Self {
                    stdin: None,
                    terminal: Some(Rc::clone(&master)),
                    outputs: vec![(master, OutputStream::Pty)],
                }
            }
        })
    }
}
