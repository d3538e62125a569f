//! Processes: start, watch, feed, end.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use serde::{Serialize, de::IgnoredAny};
use soulbox_envd_protocol::{
    Event as WireEvent, OutputStream, REPLAY_HEADER,
    process::{
        self as protocol, Empty, ListResponse, ProcessSelector, Pty, SIGKILL, SIGTERM,
        SelectRequest, SendInputRequest, SendSignalRequest, StartRequest, UpdateRequest,
    },
};

use super::{Envd, Messages, input::InputKind};
use crate::{Error, Result};

pub use soulbox_envd_protocol::process::EndEvent as End;

/// Asks our envd for the output so far (bounded) before what is new. Other servers ignore it.
const REPLAY: &[(&str, &str)] = &[(REPLAY_HEADER, "true")];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PtySize {
    pub cols: u16,
    pub rows: u16,
}

impl From<PtySize> for Pty {
    fn from(PtySize { cols, rows }: PtySize) -> Self {
        let (cols, rows) = (cols.into(), rows.into());
        Self {
            size: Some(protocol::PtySize { cols, rows }),
        }
    }
}

#[derive(Debug, Clone, Default)]
pub struct Command {
    pub program: String,
    pub arguments: Vec<String>,
    pub environment: BTreeMap<String, String>,
    /// `None`: the default working directory.
    pub directory: Option<String>,
    /// Some: on a terminal of this size.
    pub pty: Option<PtySize>,
    /// Whether anything can be sent to its standard input.
    pub stdin: bool,
    /// envd kills it after this.
    pub limit: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Stdout(Bytes),
    Stderr(Bytes),
    Pty(Bytes),
    End(End),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Kill,
    Terminate,
    /// Our own envd has these too; others refuse them.
    HangUp,
    Interrupt,
    Quit,
    User1,
    User2,
}

/// A process that envd started and that still runs. Names and arguments come from inside.
#[derive(Debug, Clone, Serialize)]
pub struct ProcessInfo {
    pub pid: u32,
    pub tag: Option<String>,
    pub config: ProcessConfig,
}

#[derive(Debug, Clone, Serialize)]
pub struct ProcessConfig {
    pub cmd: String,
    pub args: Vec<String>,
    pub envs: BTreeMap<String, String>,
    pub cwd: Option<String>,
}

impl From<protocol::ProcessInfo> for ProcessInfo {
    fn from(info: protocol::ProcessInfo) -> Self {
        let config = info.config.unwrap_or_default();
        Self {
            pid: info.pid,
            tag: info.tag,
            config: ProcessConfig {
                cmd: config.cmd,
                args: config.args,
                envs: config.envs,
                cwd: config.cwd,
            },
        }
    }
}

/// A process's output as it comes.
#[derive(Debug)]
pub struct ProcessStream {
    messages: Messages,
    pid: u32,
}

impl Envd {
    /// Returns when the process runs. It outlives this client unless it is signalled.
    pub async fn start(&self, command: &Command) -> Result<ProcessStream> {
        let request = StartRequest {
            process: Some(protocol::ProcessConfig {
                cmd: command.program.clone(),
                args: command.arguments.clone(),
                envs: command.environment.clone(),
                cwd: command.directory.clone(),
            }),
            pty: command.pty.map(Pty::from),
            stdin: Some(command.stdin),
            tag: None,
        };
        let messages = self
            .stream("process.Process/Start", &request, command.limit, &[])
            .await?;
        ProcessStream::open(messages).await
    }

    /// The output of a running process, with what it said before (as far as envd keeps it) when
    /// `replay`.
    pub async fn attach(&self, pid: u32, replay: bool) -> Result<ProcessStream> {
        let more = if replay { REPLAY } else { &[] };
        let messages = self
            .stream("process.Process/Connect", &select(pid), None, more)
            .await?;
        ProcessStream::open(messages).await
    }

    pub async fn processes(&self) -> Result<Vec<ProcessInfo>> {
        let what = "listing the processes";
        let list: ListResponse = self.unary("process.Process/List", &Empty {}, what).await?;
        Ok(list.processes.into_iter().map(Into::into).collect())
    }

    pub async fn close_stdin(&self, pid: u32) -> Result<()> {
        self.command("CloseStdin", &select(pid), "closing the input")
            .await
    }

    /// One short input; [`Envd::input`] is for many.
    pub async fn send_stdin(&self, pid: u32, bytes: &[u8]) -> Result<()> {
        self.send(pid, InputKind::Stdin, bytes).await
    }

    /// Key strokes, as the SDKs send them; [`Envd::input`] keeps one request open instead.
    pub async fn send_pty(&self, pid: u32, bytes: &[u8]) -> Result<()> {
        self.send(pid, InputKind::Pty, bytes).await
    }

    async fn send(&self, pid: u32, kind: InputKind, bytes: &[u8]) -> Result<()> {
        let request = SendInputRequest {
            process: Some(ProcessSelector::by_pid(pid)),
            input: Some(kind.input(bytes)),
        };
        self.command("SendInput", &request, "sending input").await
    }

    pub async fn signal(&self, pid: u32, signal: Signal) -> Result<()> {
        let request = SendSignalRequest {
            process: Some(ProcessSelector::by_pid(pid)),
            signal: match signal {
                Signal::Kill => SIGKILL,
                Signal::Terminate => SIGTERM,
                Signal::HangUp => 1,
                Signal::Interrupt => 2,
                Signal::Quit => 3,
                Signal::User1 => 10,
                Signal::User2 => 12,
            },
        };
        self.command("SendSignal", &request, "signalling the process")
            .await
    }

    pub async fn resize(&self, pid: u32, size: PtySize) -> Result<()> {
        let request = UpdateRequest {
            process: Some(ProcessSelector::by_pid(pid)),
            pty: Some(size.into()),
        };
        self.command("Update", &request, "resizing the terminal")
            .await
    }

    async fn command(
        &self,
        method: &str,
        request: &impl Serialize,
        what: &'static str,
    ) -> Result<()> {
        self.unary::<IgnoredAny>(&format!("process.Process/{method}"), request, what)
            .await
            .map(drop)
    }
}

pub(super) fn select(pid: u32) -> SelectRequest {
    SelectRequest {
        process: Some(ProcessSelector::by_pid(pid)),
    }
}

impl ProcessStream {
    async fn open(mut messages: Messages) -> Result<Self> {
        while let Some(message) = messages.next().await? {
            match parse(&message)? {
                Some(WireEvent::Started { pid }) => return Ok(Self { messages, pid }),
                Some(_) => break,
                None => {}
            }
        }
        Err(Error::protocol("a process stream without a start"))
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The next event; `None` after the end. Keepalives are swallowed. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        while let Some(message) = self.messages.next().await? {
            return Ok(Some(match parse(&message)? {
                None | Some(WireEvent::Started { .. }) => continue,
                Some(WireEvent::Ended(end)) => Event::End(end),
                Some(WireEvent::Output(stream, bytes)) => match stream {
                    OutputStream::Stdout => Event::Stdout(bytes.into()),
                    OutputStream::Stderr => Event::Stderr(bytes.into()),
                    OutputStream::Pty => Event::Pty(bytes.into()),
                },
            }));
        }
        Ok(None)
    }
}

/// `None`: a keepalive, or something newer than this client.
fn parse(message: &[u8]) -> Result<Option<WireEvent>> {
    WireEvent::parse(message).map_err(|error| Error::protocol(error.to_string()))
}
