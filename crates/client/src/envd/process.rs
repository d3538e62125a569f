//! Processes: start, watch, feed, end.

use std::{collections::BTreeMap, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Envd, Messages};
use crate::{Error, Result};

pub use exit::End;

mod exit;

/// Asks our envd for the output so far (bounded) before what is new. Other servers ignore it.
const REPLAY: &[(&str, &str)] = &[("soulbox-replay", "true")];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PtySize {
    pub cols: u16,
    pub rows: u16,
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
}

/// A process that envd started and that still runs. Names and arguments come from inside.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProcessInfo {
    pub pid: u32,
    #[serde(default)]
    pub tag: Option<String>,
    #[serde(default)]
    pub config: ProcessConfig,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ProcessConfig {
    #[serde(default)]
    pub cmd: String,
    #[serde(default)]
    pub args: Vec<String>,
    #[serde(default)]
    pub envs: BTreeMap<String, String>,
    #[serde(default)]
    pub cwd: Option<String>,
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
        let mut request = json!({
            "process": {
                "cmd": command.program,
                "args": command.arguments,
                "envs": command.environment,
            },
            "stdin": command.stdin,
        });
        if let Some(directory) = &command.directory {
            request["process"]["cwd"] = json!(directory);
        }
        if let Some(size) = command.pty {
            request["pty"] = json!({ "size": size });
        }
        let messages = self
            .stream("process.Process/Start", &request, command.limit, &[])
            .await?;
        ProcessStream::open(messages).await
    }

    /// The output of a running process, with what it said before (as far as envd keeps it) when
    /// `replay`.
    pub async fn attach(&self, pid: u32, replay: bool) -> Result<ProcessStream> {
        let more = if replay { REPLAY } else { &[] };
        let request = json!({ "process": selector(pid) });
        let messages = self
            .stream("process.Process/Connect", &request, None, more)
            .await?;
        ProcessStream::open(messages).await
    }

    pub async fn processes(&self) -> Result<Vec<ProcessInfo>> {
        #[derive(Deserialize)]
        struct List {
            #[serde(default)]
            processes: Vec<ProcessInfo>,
        }
        let what = "listing the processes";
        let list: List = self.unary("process.Process/List", &json!({}), what).await?;
        Ok(list.processes)
    }

    pub async fn close_stdin(&self, pid: u32) -> Result<()> {
        self.command(
            "CloseStdin",
            &json!({ "process": selector(pid) }),
            "closing the input",
        )
        .await
    }

    /// One short input; [`Envd::input`] is for many.
    pub async fn send_stdin(&self, pid: u32, bytes: &[u8]) -> Result<()> {
        let input = json!({ "stdin": STANDARD.encode(bytes) });
        let request = json!({ "process": selector(pid), "input": input });
        self.command("SendInput", &request, "sending input").await
    }

    /// Key strokes, as the SDKs send them; [`Envd::input`] keeps one request open instead.
    pub async fn send_pty(&self, pid: u32, bytes: &[u8]) -> Result<()> {
        let input = json!({ "pty": STANDARD.encode(bytes) });
        let request = json!({ "process": selector(pid), "input": input });
        self.command("SendInput", &request, "sending input").await
    }

    pub async fn signal(&self, pid: u32, signal: Signal) -> Result<()> {
        let name = match signal {
            Signal::Kill => "SIGNAL_SIGKILL",
            Signal::Terminate => "SIGNAL_SIGTERM",
        };
        let request = json!({ "process": selector(pid), "signal": name });
        self.command("SendSignal", &request, "signalling the process")
            .await
    }

    pub async fn resize(&self, pid: u32, size: PtySize) -> Result<()> {
        let request = json!({ "process": selector(pid), "pty": { "size": size } });
        self.command("Update", &request, "resizing the terminal")
            .await
    }

    async fn command(&self, method: &str, request: &Value, what: &'static str) -> Result<()> {
        self.unary::<Value>(&format!("process.Process/{method}"), request, what)
            .await
            .map(drop)
    }
}

pub(super) fn selector(pid: u32) -> Value {
    json!({ "pid": pid })
}

impl ProcessStream {
    async fn open(mut messages: Messages) -> Result<Self> {
        while let Some(message) = messages.next().await? {
            match parse(&message)? {
                Some(Parsed::Start(pid)) => return Ok(Self { messages, pid }),
                Some(Parsed::Event(_)) => break,
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
            if let Some(Parsed::Event(event)) = parse(&message)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }
}

enum Parsed {
    Start(u32),
    Event(Event),
}

/// `None`: a keepalive, or something newer than this client.
fn parse(message: &[u8]) -> Result<Option<Parsed>> {
    #[derive(Deserialize)]
    struct Wire {
        event: WireEvent,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    struct WireEvent {
        start: Option<WireStart>,
        data: Option<WireData>,
        end: Option<End>,
    }
    #[derive(Deserialize)]
    struct WireStart {
        #[serde(default)]
        pid: u32,
    }
    #[derive(Deserialize)]
    struct WireData {
        stdout: Option<String>,
        stderr: Option<String>,
        pty: Option<String>,
    }

    let wire: Wire =
        serde_json::from_slice(message).map_err(|error| Error::protocol(error.to_string()))?;
    let event = wire.event;
    if let Some(start) = event.start {
        return Ok(Some(Parsed::Start(start.pid)));
    }
    if let Some(end) = event.end {
        return Ok(Some(Parsed::Event(Event::End(end))));
    }
    let Some(data) = event.data else {
        return Ok(None);
    };
    let event = if let Some(text) = data.stdout {
        Event::Stdout(decode(&text)?)
    } else if let Some(text) = data.stderr {
        Event::Stderr(decode(&text)?)
    } else if let Some(text) = data.pty {
        Event::Pty(decode(&text)?)
    } else {
        return Ok(None);
    };
    Ok(Some(Parsed::Event(event)))
}

fn decode(text: &str) -> Result<Bytes> {
    STANDARD
        .decode(text)
        .map(Bytes::from)
        .map_err(|error| Error::protocol(error.to_string()))
}

#[cfg(test)]
mod properties;
