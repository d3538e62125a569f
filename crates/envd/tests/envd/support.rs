//! A running envd, and an HTTP client that is just enough to talk to it.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

pub(crate) const NODE_TOKEN: &str = "node-secret";
const PATIENCE: Duration = Duration::from_secs(20);

/// The descriptors are the real ones: configuration on 3, readiness on 4.
const LAUNCH: &str = "exec \"$0\" --port $1 3<\"$2\" 4>&1 >/dev/null";
/// As the first process of a sandbox: it may write to /run, and its root is not the host's.
const LAUNCH_FIRST: &str = "exec unshare --pid --mount --fork --kill-child --mount-proc \
    bash -c 'mount -t tmpfs none /run && exec setpriv --bounding-set=-sys_ptrace,-sys_admin,-perfmon \"$0\" --port $1 3<\"$2\" 4>&1 >/dev/null' \
    \"$0\" $1 \"$2\"";

pub(crate) struct Envd {
    child: Child,
    pub(crate) port: u16,
    pub(crate) home: tempfile::TempDir,
    is_first: bool,
}

impl Envd {
    pub(crate) fn start() -> Self {
        Self::with_token(None)
    }

    pub(crate) fn with_token(token: Option<&str>) -> Self {
        Self::launch(LAUNCH, token)
    }

    /// As pid 1 of its own namespace.
    pub(crate) fn first_process() -> Self {
        Self::launch(LAUNCH_FIRST, None)
    }

    fn launch(script: &str, token: Option<&str>) -> Self {
        let home = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let config = json!({
            "sandbox_id": "itest", "template_id": "base", "access_token": token,
            "node_token": NODE_TOKEN, "env": { "FROM_TEMPLATE": "yes" }, "default_user": "root",
            "default_workdir": home.path(), "memory_bytes": 1 << 29, "cpu_count": 2, "disk_bytes": 0,
        });
        let file = home.path().join(".config.json");
        std::fs::write(&file, config.to_string()).unwrap();
        let mut child = Command::new("bash")
            .args(["-c", script])
            .arg(env!("CARGO_BIN_EXE_soulbox-envd"))
            .arg(port.to_string())
            .arg(file)
            .env("LEAK", "must-not-be-seen")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0];
        child
            .stdout
            .take()
            .unwrap()
            .read_exact(&mut ready)
            .expect("envd says that it is ready");
        Self {
            child,
            port,
            home,
            is_first: script == LAUNCH_FIRST,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
        if method != "GET" && method != "HEAD" {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        stream
    }

    pub(crate) fn http(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Response {
        let mut stream = BufReader::new(self.send(method, path, headers, body));
        let (status, headers) = read_head(&mut stream);
        let mut raw = Vec::new();
        if method != "HEAD" {
            Body::new(stream, &headers).read_to_end(&mut raw).unwrap();
        }
        Response {
            status,
            headers,
            body: raw,
        }
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        self.http("GET", path, &[], b"")
    }

    /// A unary call with JSON.
    pub(crate) fn call(&self, method: &str, message: &Value) -> (u16, Value) {
        self.call_with(method, &[], message)
    }

    pub(crate) fn call_with(
        &self,
        method: &str,
        headers: &[(&str, &str)],
        message: &Value,
    ) -> (u16, Value) {
        let mut all = vec![("Content-Type", "application/json")];
        all.extend_from_slice(headers);
        let response = self.http(
            "POST",
            &format!("/{method}"),
            &all,
            message.to_string().as_bytes(),
        );
        (response.status, response.json())
    }

    /// A server stream with JSON.
    pub(crate) fn stream(
        &self,
        method: &str,
        headers: &[(&str, &str)],
        message: &Value,
    ) -> Messages {
        let mut all = vec![("Content-Type", "application/connect+json")];
        all.extend_from_slice(headers);
        let body = envelope(message.to_string().as_bytes());
        let stream = self.send("POST", &format!("/{method}"), &all, &body);
        let mut stream = BufReader::new(stream);
        let (status, headers) = read_head(&mut stream);
        assert_eq!(status, 200, "streams answer 200, errors come at the end");
        Messages {
            body: Body::new(stream, &headers),
        }
    }

    pub(crate) fn start_process(&self, message: &Value) -> (u64, Messages) {
        self.start_process_with(&[], message)
    }

    pub(crate) fn start_process_with(
        &self,
        headers: &[(&str, &str)],
        message: &Value,
    ) -> (u64, Messages) {
        let mut stream = self.stream("process.Process/Start", headers, message);
        let first = stream.next().expect("a start event");
        let pid = first["event"]["start"]["pid"]
            .as_u64()
            .unwrap_or_else(|| panic!("{first}"));
        (pid, stream)
    }

    pub(crate) fn signal(&self, pid: u64, signal: &str) -> (u16, Value) {
        let message = json!({ "process": { "pid": pid }, "signal": signal });
        self.call("process.Process/SendSignal", &message)
    }
}

impl Drop for Envd {
    fn drop(&mut self) {
        if self.is_first {
            // Takes the whole namespace along.
            let _ = self.child.kill();
        } else {
            let pid = self.child.id().to_string();
            let _ = Command::new("kill").args(["-TERM", &pid]).status();
        }
        let _ = self.child.wait();
    }
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, v)| v.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {}", self.text()))
    }
}

fn read_head(stream: &mut BufReader<TcpStream>) -> (u16, Vec<(String, String)>) {
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    let status = line
        .split(' ')
        .nth(1)
        .expect("a status line")
        .parse()
        .unwrap();
    let mut headers = Vec::new();
    loop {
        line.clear();
        stream.read_line(&mut line).unwrap();
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.to_owned())),
            None => return (status, headers),
        }
    }
}

/// A body in chunks, or until the connection closes.
struct Body {
    stream: BufReader<TcpStream>,
    chunked: bool,
    left: usize,
    ended: bool,
}

impl Body {
    fn new(stream: BufReader<TcpStream>, headers: &[(String, String)]) -> Self {
        let chunked = headers
            .iter()
            .any(|(n, v)| n == "transfer-encoding" && v == "chunked");
        Self {
            stream,
            chunked,
            left: 0,
            ended: false,
        }
    }
}

impl Read for Body {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        if !self.chunked {
            return self.stream.read(to);
        }
        if self.left == 0 && !self.ended {
            let mut line = String::new();
            self.stream.read_line(&mut line)?;
            if line == "\r\n" {
                line.clear();
                self.stream.read_line(&mut line)?;
            }
            self.left = usize::from_str_radix(line.trim(), 16).map_err(std::io::Error::other)?;
            self.ended = self.left == 0;
        }
        let limit = self.left.min(to.len());
        let read = self.stream.read(&mut to[..limit])?;
        self.left -= read;
        Ok(read)
    }
}

pub(crate) fn envelope(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], length.as_slice(), message].concat()
}

/// The messages of a server stream.
pub(crate) struct Messages {
    body: Body,
}

impl Messages {
    /// The next message, or the end: its error, or `{}`.
    pub(crate) fn next_or_end(&mut self) -> Result<Value, Value> {
        let mut header = [0; 5];
        self.body
            .read_exact(&mut header)
            .expect("a stream ends with an end-of-stream frame");
        let length = u32::from_be_bytes(header[1..].try_into().unwrap());
        let mut message = vec![0; length as usize];
        self.body.read_exact(&mut message).unwrap();
        let value = serde_json::from_slice(&message).unwrap();
        if header[0] == 2 {
            Err(value)
        } else {
            Ok(value)
        }
    }

    pub(crate) fn next(&mut self) -> Option<Value> {
        self.next_or_end().ok()
    }

    /// Everything until the end: output by stream, the end event, the end of the stream.
    pub(crate) fn finish(mut self) -> Finished {
        let mut finished = Finished::default();
        loop {
            match self.next_or_end() {
                Ok(message) => {
                    let event = &message["event"];
                    for (name, to) in [
                        ("stdout", &mut finished.stdout),
                        ("stderr", &mut finished.stderr),
                        ("pty", &mut finished.pty),
                    ] {
                        if let Some(text) = event["data"][name].as_str() {
                            to.extend(STANDARD.decode(text).unwrap());
                        }
                    }
                    if event["end"].is_object() {
                        finished.end = event["end"].clone();
                    }
                }
                Err(end) => {
                    finished.error = end["error"].clone();
                    return finished;
                }
            }
        }
    }

    /// Reads until the output holds `text`.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let mut seen = String::new();
        while !seen.contains(text) {
            let message = self
                .next()
                .unwrap_or_else(|| panic!("{text:?} never came: {seen:?}"));
            for name in ["stdout", "stderr", "pty"] {
                if let Some(data) = message["event"]["data"][name].as_str() {
                    seen += &String::from_utf8_lossy(&STANDARD.decode(data).unwrap());
                }
            }
        }
        seen
    }

    pub(crate) fn hang_up(self) {
        let _ = self.body.stream.get_ref().shutdown(Shutdown::Both);
    }
}

#[derive(Default, Debug)]
pub(crate) struct Finished {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) pty: Vec<u8>,
    pub(crate) end: Value,
    pub(crate) error: Value,
}

impl Finished {
    pub(crate) fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

/// A Start request for a shell script.
pub(crate) fn shell(script: &str) -> Value {
    json!({ "process": { "cmd": "/bin/bash", "args": ["-c", script] }, "stdin": false })
}

/// Asks again until it is so. For effects that have no event to wait for.
pub(crate) fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let since = Instant::now();
    while !check() {
        assert!(since.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A small disk.
pub(crate) struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    pub(crate) fn new(path: &'a Path, size: &str) -> Self {
        let options = format!("size={size}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "none"])
            .arg(path)
            .status()
            .unwrap();
        assert!(mounted.success());
        Self(path)
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}
