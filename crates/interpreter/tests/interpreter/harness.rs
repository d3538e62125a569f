//! Starts the server on a port of its own, with an envd of its own, and speaks HTTP to it.

use std::{
    collections::BTreeSet,
    env,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct Server {
    child: Child,
    port: u16,
    state: tempfile::TempDir,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: String,
    pub(crate) body: String,
}

impl Server {
    /// With the sandbox's variables that its envd shall tell.
    pub(crate) fn start(variables: &Value) -> Self {
        Self::start_in(variables, &[])
    }

    /// With variables of its own environment, too, which its kernels inherit.
    pub(crate) fn start_in(variables: &Value, environment: &[(&str, &str)]) -> Self {
        let state = tempfile::tempdir().unwrap();
        let port = free_port();
        let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernel");
        let child = Command::new(env!("CARGO_BIN_EXE_soulbox-interpreter"))
            .args(["--port", &port.to_string()])
            .args(["--envd-port", &envd(variables.to_string()).to_string()])
            .arg("--files")
            .arg(files)
            .arg("--state")
            .arg(state.path().join("s"))
            .arg("--home")
            .arg(state.path())
            .current_dir(state.path())
            .env("PATH", path())
            .envs(environment.iter().copied())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { child, port, state };
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "the server does not listen");
            thread::yield_now();
        }
        assert_eq!(server.get("/health").body, "\"OK\"");
        server
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where contexts are, and the server too.
    pub(crate) fn home(&self) -> &Path {
        self.state.path()
    }

    /// The folders of the kernels that live: each has one of its own, with a name of its own.
    pub(crate) fn kernels(&self) -> BTreeSet<PathBuf> {
        let folders = std::fs::read_dir(self.state.path().join("s/kernels")).unwrap();
        folders.map(|folder| folder.unwrap().path()).collect()
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.request("GET", path, "")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.request("POST", path, &body.to_string())
    }

    pub(crate) fn request(&self, method: &str, path: &str, body: &str) -> Answer {
        let mut stream = self.send(method, path, body);
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (headers, body) = text.split_once("\r\n\r\n").unwrap();
        let chunked = headers.contains("transfer-encoding: chunked");
        Answer {
            status: headers[9..12].parse().unwrap(),
            headers: headers.to_owned(),
            body: if chunked {
                unchunked(body)
            } else {
                body.to_owned()
            },
        }
    }

    /// Sends a request and leaves the answer unread.
    pub(crate) fn send(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        stream
    }

    /// The events of a cell.
    pub(crate) fn execute(&self, request: &Value) -> Vec<Value> {
        let answer = self.post("/execute", request);
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer
            .body
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    pub(crate) fn run(&self, code: &str) -> Vec<Value> {
        self.execute(&json!({ "code": code }))
    }

    /// Starts a cell, waits for its first line of output, and goes away.
    pub(crate) fn abandon(&self, request: &Value) {
        let stream = self.send("POST", "/execute", &request.to_string());
        let started = BufReader::new(stream)
            .lines()
            .map(Result::unwrap)
            .any(|line| line.contains("\"stdout\""));
        assert!(started, "the cell printed nothing");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _gone = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _status = self.child.wait();
    }
}

/// Waits until something is so. Fails with its name.
pub(crate) fn eventually(what: &str, so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < deadline, "it never came to pass: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn texts(events: &[Value], kind: &str) -> Vec<String> {
    events
        .iter()
        .filter(|event| event["type"] == kind)
        .filter_map(|event| event["text"].as_str().map(str::to_owned))
        .collect()
}

pub(crate) fn error(events: &[Value]) -> (String, String) {
    let error = events
        .iter()
        .find(|event| event["type"] == "error")
        .unwrap_or_else(|| panic!("no error in {events:?}"));
    let text = |name: &str| error[name].as_str().unwrap().to_owned();
    (text("name"), text("value"))
}

/// Whether a command succeeds; says so when not.
pub(crate) fn has(what: &str, program: &str, arguments: &[&str]) -> bool {
    let found = Command::new(program)
        .args(arguments)
        .env("PATH", path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !found {
        eprintln!("skipped: {what} is not installed");
    }
    found
}

fn path() -> String {
    let path = env::var("PATH").unwrap();
    match env::var("SOULBOX_TEST_PYTHON") {
        Ok(first) => format!("{first}:{path}"),
        Err(_) => path,
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// Answers every request with the variables, as long as the test runs.
fn envd(variables: String) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            while head.read_line(&mut line).is_ok_and(|length| length > 2) {
                line.clear();
            }
            let _gone = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{variables}",
                variables.len()
            );
        }
    });
    port
}

fn unchunked(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return text;
        }
        text.push_str(&rest[..size]);
        body = &rest[size + 2..];
    }
    panic!("the answer ended before its end");
}

pub(crate) fn peak_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(PathBuf::from(format!("/proc/{pid}/status"))).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}
