//! `process.Process`.

use std::{rc::Rc, time::Duration};

use http::{Request, Response};
use hyper::body::Incoming;
use soulbox_envd_protocol::REPLAY_HEADER;

use super::{follow::follow, keepalive_interval, user};
use crate::{
    connect::{
        self, Call, Code, ConnectError, Sink, client_stream, serve::Messages, server_stream, unary,
    },
    http::{body::Body, reply::Failure},
    process::{self, InputError, Process, StartError},
    proto::process::{
        Empty, EventResponse, ListResponse, ProcessInfo, ProcessInput, ProcessSelector, SIGKILL,
        SIGTERM, SelectRequest, SendInputRequest, SendSignalRequest, StartRequest,
        StreamInputRequest, UpdateRequest,
    },
    state::Envd,
};

/// How long the answer to a kill waits for the death. In the kernel it may take longer.
const DEATH: Duration = Duration::from_secs(1);

pub(crate) async fn dispatch(
    envd: Rc<Envd>,
    method: &str,
    request: Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    Ok(match method {
        "Start" => server_stream(envd, request, start).await,
        "Connect" => server_stream(envd, request, connect).await,
        "List" => unary(envd, request, list).await,
        "Update" => unary(envd, request, update).await,
        "SendInput" => unary(envd, request, send_input).await,
        "StreamInput" => client_stream(envd, request, stream_input).await,
        "SendSignal" => unary(envd, request, send_signal).await,
        "CloseStdin" => unary(envd, request, close_stdin).await,
        _ => return Err(Failure::no_route()),
    })
}

async fn start(
    call: Call,
    request: StartRequest,
    sink: &Sink<EventResponse>,
) -> Result<(), ConnectError> {
    let user = user(&call)?;
    let keepalive = keepalive_interval(&call);
    let process = process::start(&call.envd, request, &user, call.deadline).await?;
    // Nothing was read before now, so a replay is simply everything.
    follow(&call, &process, true, keepalive, sink).await
}

async fn connect(
    call: Call,
    request: SelectRequest,
    sink: &Sink<EventResponse>,
) -> Result<(), ConnectError> {
    let selector = request.process.unwrap_or_default();
    let process = call
        .envd
        .processes
        .find(&selector)
        .ok_or_else(|| not_found(&selector))?;
    let replay = call
        .header(REPLAY_HEADER)
        .is_some_and(|v| v.eq_ignore_ascii_case("true"));
    follow(&call, &process, replay, keepalive_interval(&call), sink).await
}

async fn list(call: Call, _: Empty) -> Result<ListResponse, ConnectError> {
    let processes = call.envd.processes.list();
    let info = |process: &Rc<Process>| ProcessInfo {
        config: Some(process.config.clone()),
        pid: process.id(),
        tag: process.tag.clone(),
    };
    Ok(ListResponse {
        processes: processes.iter().map(info).collect(),
    })
}

async fn update(call: Call, request: UpdateRequest) -> Result<Empty, ConnectError> {
    let process = find(&call, request.process)?;
    if let Some(size) = request.pty.and_then(|pty| pty.size) {
        let (cols, rows) = process::size(&size);
        process
            .resize(cols, rows)
            .map_err(|e| ConnectError::internal(e.to_string()))?;
    }
    Ok(Empty {})
}

async fn send_input(call: Call, request: SendInputRequest) -> Result<Empty, ConnectError> {
    let process = find(&call, request.process)?;
    write(&process, request.input).await?;
    Ok(Empty {})
}

async fn stream_input(
    call: Call,
    mut messages: Messages<StreamInputRequest>,
) -> Result<Empty, ConnectError> {
    let mut process = None;
    while let Some(message) = messages.next().await? {
        if let Some(start) = message.start {
            process = Some(find(&call, start.process)?);
        } else if let Some(data) = message.data {
            let process = process
                .as_ref()
                .ok_or_else(|| ConnectError::invalid("the first message must be start"))?;
            write(process, data.input).await?;
        }
    }
    Ok(Empty {})
}

async fn send_signal(call: Call, request: SendSignalRequest) -> Result<Empty, ConnectError> {
    let process = find(&call, request.process)?;
    match request.signal {
        SIGKILL => {
            process.kill();
            // Whoever looks right after the answer should not find it any more.
            let _slow_to_die = tokio::time::timeout(DEATH, process.ended()).await;
        }
        SIGTERM => process.terminate(),
        // Ours: E2B knows the two above.
        number => match process::passed_on(number) {
            Some(signal) => process.signal(signal),
            None => {
                return Err(ConnectError::new(
                    Code::Unimplemented,
                    "only SIGNAL_SIGKILL, SIGNAL_SIGTERM and the numbers 1, 2, 3, 10 and 12 can be sent",
                ));
            }
        },
    }
    Ok(Empty {})
}

async fn close_stdin(call: Call, request: SelectRequest) -> Result<Empty, ConnectError> {
    let process = find(&call, request.process)?;
    if process.is_terminal() {
        return Err(ConnectError::new(
            Code::Unknown,
            "a terminal's input cannot be closed: send Ctrl+D (0x04) instead",
        ));
    }
    process.close_input();
    Ok(Empty {})
}

async fn write(process: &Process, input: Option<ProcessInput>) -> Result<(), ConnectError> {
    let written = match input.unwrap_or_default() {
        ProcessInput {
            stdin: Some(data), ..
        } => process.write_stdin(&data).await,
        ProcessInput {
            pty: Some(data), ..
        } => process.write_terminal(&data).await,
        _ => return Err(ConnectError::new(Code::Unimplemented, "no input given")),
    };
    written.map_err(|error| match error {
        // Not a process that takes no more: what was sent is not all there.
        InputError::Stalled => ConnectError::new(Code::DeadlineExceeded, error.to_string()),
        _ => ConnectError::internal(error.to_string()),
    })
}

fn find(call: &Call, selector: Option<ProcessSelector>) -> Result<Rc<Process>, ConnectError> {
    let selector = selector.unwrap_or_default();
    call.envd
        .processes
        .find_live(&selector)
        .ok_or_else(|| not_found(&selector))
}

fn not_found(selector: &ProcessSelector) -> ConnectError {
    ConnectError::not_found(match (selector.pid, &selector.tag) {
        (Some(pid), _) => format!("process with pid {pid} not found"),
        (None, Some(tag)) => format!("process with tag {tag} not found"),
        (None, None) => "no process selected".to_owned(),
    })
}

impl From<StartError> for connect::ConnectError {
    fn from(error: StartError) -> Self {
        Self::invalid(error.to_string())
    }
}
