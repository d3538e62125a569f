//! A process on a channel: its streams, its terminal's size, signals, and how it ended.

use std::{collections::BTreeMap, convert::Infallible, time::Duration};

use bytes::Bytes;
use russh::{Sig, server::Handle};
use soulbox_client::{
    Envd, Error,
    envd::{
        input::InputKind,
        process::{Command, End, Event, ProcessStream, PtySize, Signal},
    },
};
use soulbox_types::Chain;
use tokio::{sync::mpsc, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    account,
    flow::{Input, Output},
};

/// What envd takes for its own SFTP server.
const SFTP_COMMAND: &str = "soulbox:sftp-server";

/// What envd answers when a process has taken nothing for long.
const STALLED: &str = "deadline_exceeded";
/// Shorter than what the sessions of a client that has left may take.
const START_LIMIT: Duration = Duration::from_secs(4);

/// What a client asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Shell,
    Line(String),
    Sftp,
}

/// What a client asks of a running session.
#[derive(Debug)]
pub(crate) enum Order {
    Resize(PtySize),
    Signal(Signal),
}

#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) pty: Option<PtySize>,
}

pub(crate) struct Session {
    pub(crate) envd: Envd,
    pub(crate) user: String,
    pub(crate) task: Task,
    pub(crate) settings: Settings,
    pub(crate) input: Input,
    pub(crate) output: Output,
    pub(crate) orders: mpsc::Receiver<Order>,
    pub(crate) handle: Handle,
    /// The client has closed the channel, or left.
    pub(crate) left: CancellationToken,
}

impl Session {
    pub(crate) async fn run(self) {
        let Self {
            envd,
            user,
            task,
            settings,
            input,
            output,
            orders,
            handle,
            left,
        } = self;
        let is_terminal = settings.pty.is_some();
        let started = async {
            let command = command(&envd, &user, task, settings).await;
            envd.start(&command).await
        };
        let mut started = std::pin::pin!(started);
        let Some(started) = left.run_until_cancelled(started.as_mut()).await else {
            // envd may have started it already; then it must learn that nobody is there.
            if let Ok(Ok(process)) = timeout(START_LIMIT, started).await {
                hang_up(&envd, process.pid()).await;
            }
            return;
        };
        let process = match started {
            Ok(process) => process,
            Err(error) => {
                complain(&output, is_terminal, &error).await;
                finish(&output).await;
                return;
            }
        };
        let pid = process.pid();
        let kind = if is_terminal {
            InputKind::Pty
        } else {
            InputKind::Stdin
        };
        let exchange = async {
            tokio::select! {
                // It goes on when the client has finished, or the process takes no more.
                failed = feed(&envd, pid, kind, input) => Err(failed),
                never = obey(&envd, pid, orders) => match never {},
                result = pass_output(process, &output) => result,
            }
        };
        match left.run_until_cancelled(exchange).await {
            Some(Ok(Some(end))) => {
                tell(&output, &handle, &end).await;
                finish(&output).await;
            }
            // Without an exit status the client knows that something went wrong.
            Some(Ok(None)) => finish(&output).await,
            Some(Err(Failed::Sandbox(error))) => {
                complain(&output, is_terminal, &error).await;
                finish(&output).await;
            }
            // With half of its input the process would take it for the whole.
            Some(Err(Failed::Input(error))) => {
                hang_up(&envd, pid).await;
                complain(&output, is_terminal, &error).await;
                finish(&output).await;
            }
            Some(Err(Failed::Client)) | None => hang_up(&envd, pid).await,
        }
    }
}

enum Failed {
    Sandbox(Error),
    Input(Error),
    Client,
}

async fn command(envd: &Envd, user: &str, task: Task, settings: Settings) -> Command {
    let mut command = Command {
        environment: settings.environment,
        pty: settings.pty,
        stdin: settings.pty.is_none(),
        ..Command::default()
    };
    if task == Task::Sftp {
        SFTP_COMMAND.clone_into(&mut command.program);
        return command;
    }
    command.program = account::shell(envd, user).await;
    let shell = command.program.clone();
    command
        .environment
        .entry("SHELL".to_owned())
        .or_insert(shell);
    command.arguments = match task {
        Task::Line(line) => vec!["-c".to_owned(), line],
        Task::Shell | Task::Sftp => vec!["-l".to_owned()],
    };
    command
}

/// The end of the process ends it. Returns only when input could not be handed over.
async fn feed(envd: &Envd, pid: u32, kind: InputKind, mut input: Input) -> Failed {
    let process = envd.input(pid, kind);
    while let Some(true) = input.next(async |bytes| process.send(bytes).await).await {}
    // What nobody will read must not hold back the client's other sessions.
    drop(input);
    match process.drained().await {
        Ok(()) => {}
        // The process has closed its input, or is gone.
        Err(error) if error.rpc_code().is_some_and(|code| code != STALLED) => {}
        Err(error) => return Failed::Input(error),
    }
    // A terminal has no end of input; programs on it see the hangup when the client leaves.
    if kind == InputKind::Stdin {
        envd.close_stdin(pid).await.ok();
    }
    std::future::pending().await
}

async fn obey(envd: &Envd, pid: u32, mut orders: mpsc::Receiver<Order>) -> Infallible {
    while let Some(order) = orders.recv().await {
        // One that comes too late has nobody to reach.
        match order {
            Order::Resize(size) => envd.resize(pid, size).await.ok(),
            Order::Signal(signal) => envd.signal(pid, signal).await.ok(),
        };
    }
    std::future::pending().await
}

/// How the process ended, if that was told.
async fn pass_output(mut process: ProcessStream, output: &Output) -> Result<Option<End>, Failed> {
    while let Some(event) = process.next().await.map_err(Failed::Sandbox)? {
        let written = match event {
            Event::Stdout(bytes) | Event::Pty(bytes) => output.write(bytes).await,
            Event::Stderr(bytes) => output.write_error(bytes).await,
            Event::End(end) => return Ok(Some(end)),
        };
        written.map_err(|_| Failed::Client)?;
    }
    Ok(None)
}

async fn tell(output: &Output, handle: &Handle, end: &End) {
    let id = output.channel().id();
    if let Some(name) = end.signal().and_then(signal_name) {
        let message = end.error.clone().unwrap_or_default();
        let language = String::new();
        let told = handle.exit_signal_request(id, name, false, message, language);
        told.await.ok();
    } else {
        let status = u32::from(end.shell_status());
        output.channel().exit_status(status).await.ok();
    }
}

async fn finish(output: &Output) {
    output.channel().eof().await.ok();
    output.channel().close().await.ok();
}

async fn complain(output: &Output, is_terminal: bool, error: &Error) {
    let end = if is_terminal { "\r\n" } else { "\n" };
    let text = Bytes::from(format!("soulbox: {}{end}", Chain(error)));
    output.write_error(text).await.ok();
}

/// As a terminal that is closed: the process and its children end, unless they do not care.
async fn hang_up(envd: &Envd, pid: u32) {
    if envd.signal(pid, Signal::HangUp).await.is_err() {
        // An envd from before knows only this.
        envd.signal(pid, Signal::Terminate).await.ok();
    }
}

/// Those that have a name in SSH.
fn signal_name(number: u8) -> Option<Sig> {
    Some(match number {
        1 => Sig::HUP,
        2 => Sig::INT,
        3 => Sig::QUIT,
        4 => Sig::ILL,
        6 => Sig::ABRT,
        8 => Sig::FPE,
        9 => Sig::KILL,
        10 => Sig::USR1,
        11 => Sig::SEGV,
        13 => Sig::PIPE,
        14 => Sig::ALRM,
        15 => Sig::TERM,
        _ => return None,
    })
}

pub(crate) fn signal_of(name: &Sig) -> Option<Signal> {
    Some(match name {
        Sig::HUP => Signal::HangUp,
        Sig::INT => Signal::Interrupt,
        Sig::QUIT => Signal::Quit,
        Sig::KILL => Signal::Kill,
        Sig::TERM => Signal::Terminate,
        Sig::USR1 => Signal::User1,
        _ => return None,
    })
}
