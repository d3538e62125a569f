//! The other end of the wire: one sandbox `iabc` (and a row for `ixyz`), one process.

use std::{
    convert::Infallible,
    io,
    sync::{Arc, Mutex},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch};

type Reply = Response<UnsyncBoxBody<Bytes, io::Error>>;

/// What the process does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Script {
    Exit {
        stdout: &'static str,
        stderr: &'static str,
        code: i32,
    },
    /// Says something and never ends.
    Hang { stdout: &'static str },
    /// Never starts.
    Refuse {
        code: &'static str,
        message: &'static str,
    },
    /// Ended by envd at its time limit.
    Late,
    /// The sandbox dies under it.
    Cut,
    /// Gives back its input when that is closed.
    UntilStdinCloses,
    /// No sandbox for as long as the test lasts: its template is being built.
    TemplateIsBuilt,
}

pub(crate) struct Peer {
    url: String,
    state: Arc<State>,
}

struct State {
    script: Script,
    requests: Mutex<Vec<(String, Bytes)>>,
    stdin: watch::Sender<(Vec<u8>, bool)>,
}

impl Peer {
    pub(crate) async fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let stdin = watch::Sender::new((Vec::new(), false));
        let state = Arc::new(State {
            script,
            requests: Mutex::default(),
            stdin,
        });
        let shared = state.clone();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let state = shared.clone();
                let service = service_fn(move |request| answer(state.clone(), request));
                tokio::spawn(async move {
                    // Clients that go away in the middle are part of the tests.
                    auto::Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(connection), service)
                        .await
                        .ok();
                });
            }
        });
        Self { url, state }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn count(&self, method: &str, target: &str) -> usize {
        let wanted = format!("{method} {target}");
        self.state
            .requests
            .lock()
            .unwrap()
            .iter()
            .filter(|(line, _)| *line == wanted)
            .count()
    }

    /// The messages of all streams opened at this procedure.
    pub(crate) fn bodies(&self, target: &str) -> Vec<Value> {
        let requests = self.state.requests.lock().unwrap();
        let bodies = requests.iter().filter(|(line, _)| line.ends_with(target));
        bodies
            .map(|(_, body)| serde_json::from_slice(&body[5..]).unwrap())
            .collect()
    }
}

async fn answer(state: Arc<State>, request: Request<Incoming>) -> Result<Reply, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let line = format!("{} {}", head.method, head.uri);
    state
        .requests
        .lock()
        .unwrap()
        .push((line.clone(), body.clone()));
    let row = |id: &str| {
        json!({"sandboxID": id, "templateID": "t", "clientID": "c", "alias": "base",
            "startedAt": "2026-01-01T00:00:00Z", "endAt": "2026-01-01T00:05:00Z", "cpuCount": 2,
            "memoryMB": 512, "diskSizeMB": 1024, "state": "running", "envdVersion": "0.6.13"})
    };
    Ok(match line.as_str() {
        "POST /v2/sandboxes" if matches!(state.script, Script::TemplateIsBuilt) => {
            std::future::pending().await
        }
        "GET /templates" => plain(
            200,
            &json!([{"templateID": "t", "buildID": "b", "cpuCount": 1, "memoryMB": 1, "diskSizeMB": 1,
                    "public": false, "aliases": ["base"], "names": ["base"], "createdAt": "2026-01-01T00:00:00Z",
                    "updatedAt": "2026-01-01T00:00:00Z", "spawnCount": 0, "buildCount": 1, "envdVersion": "0",
                    "buildStatus": "building"}]),
        ),
        "POST /v2/sandboxes" | "POST /v2/sandboxes/iabc/connect" => plain(201, &row("iabc")),
        "GET /v2/sandboxes?limit=100" => plain(200, &json!([row("iabc"), row("ixyz")])),
        "GET /sandboxes/iabc" => plain(200, &row("iabc")),
        "DELETE /sandboxes/iabc" | "POST /sandboxes/iabc/timeout" => plain(204, &Value::Null),
        "POST /process.Process/Start" => start(&state),
        "POST /process.Process/StreamInput" => {
            let input = inputs(&body);
            state.stdin.send_modify(|(stdin, _)| stdin.extend(input));
            streamed(vec![message(&json!({})), end(&json!({}))])
        }
        "POST /process.Process/CloseStdin" => {
            state.stdin.send_modify(|(_, closed)| *closed = true);
            plain(200, &json!({}))
        }
        "POST /filesystem.Filesystem/Stat" => {
            let request: Value = serde_json::from_slice(&body).unwrap();
            let folder = request["path"].as_str().unwrap().ends_with('/');
            let kind = if folder {
                "FILE_TYPE_DIRECTORY"
            } else {
                "FILE_TYPE_FILE"
            };
            plain(
                200,
                &json!({"entry": {"name": "x", "type": kind, "path": request["path"]}}),
            )
        }
        line if line.starts_with("POST /files?") => plain(200, &json!([{"name": "x"}])),
        line if line.starts_with("GET /files?") => Response::new(
            Full::from("stored")
                .map_err(|never| match never {})
                .boxed_unsync(),
        ),
        _ => plain(404, &json!({"code": 404, "message": "no such thing"})),
    })
}

fn start(state: &Arc<State>) -> Reply {
    let started = message(&json!({"event": {"start": {"pid": 7}}}));
    let data = |name: &str, text: &[u8]| {
        message(&json!({"event": {"data": {name: STANDARD.encode(text)}}}))
    };
    let exit = |code: i32| {
        let status = format!("exit status {code}");
        message(&json!({"event": {"end": {"exitCode": code, "exited": true, "status": status}}}))
    };
    match state.script {
        Script::Exit {
            stdout,
            stderr,
            code,
        } => streamed(vec![
            started,
            data("stdout", stdout.as_bytes()),
            data("stderr", stderr.as_bytes()),
            exit(code),
            end(&json!({})),
        ]),
        Script::Hang { stdout } => {
            let first = [started, data("stdout", stdout.as_bytes())];
            body(stream::iter(first).chain(stream::pending()))
        }
        Script::Refuse { code, message } => streamed(vec![end(
            &json!({"error": {"code": code, "message": message}}),
        )]),
        Script::Late => {
            let error = json!({"error": {"code": "deadline_exceeded", "message": "late"}});
            streamed(vec![started, end(&error)])
        }
        Script::Cut | Script::TemplateIsBuilt => streamed(vec![started]),
        Script::UntilStdinCloses => {
            let mut stdin = state.stdin.subscribe();
            let rest = stream::once(async move {
                let (input, _) = stdin.wait_for(|(_, closed)| *closed).await.unwrap().clone();
                stream::iter([data("stdout", &input), exit(0), end(&json!({}))])
            });
            body(stream::iter([started]).chain(rest.flatten()))
        }
    }
}

/// The bytes in a StreamInput request.
fn inputs(mut body: &[u8]) -> Vec<u8> {
    let mut found = Vec::new();
    while let Some((header, rest)) = body.split_first_chunk::<5>() {
        let length = u32::from_be_bytes(header[1..].try_into().unwrap()) as usize;
        let message: Value = serde_json::from_slice(&rest[..length]).unwrap();
        if let Some(text) = message["data"]["input"]["stdin"].as_str() {
            found.extend(STANDARD.decode(text).unwrap());
        }
        body = &rest[length..];
    }
    found
}

fn plain(status: u16, value: &Value) -> Reply {
    let text = if value.is_null() {
        String::new()
    } else {
        value.to_string()
    };
    let body = Full::from(text)
        .map_err(|never| match never {})
        .boxed_unsync();
    Response::builder().status(status).body(body).unwrap()
}

fn streamed(frames: Vec<Bytes>) -> Reply {
    body(stream::iter(frames))
}

fn body(frames: impl futures_util::Stream<Item = Bytes> + Send + 'static) -> Reply {
    let frames = frames.map(|frame| Ok(Frame::data(frame)));
    Response::new(StreamBody::new(frames).boxed_unsync())
}

fn message(value: &Value) -> Bytes {
    frame(0, value)
}

fn end(value: &Value) -> Bytes {
    frame(2, value)
}

fn frame(flags: u8, value: &Value) -> Bytes {
    let payload = value.to_string();
    let mut frame = vec![flags];
    frame.extend(u32::try_from(payload.len()).unwrap().to_be_bytes());
    frame.extend(payload.as_bytes());
    frame.into()
}
