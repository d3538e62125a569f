//! A process that has loaded a kernel's libraries and forks a ready kernel on demand.
//!
//! The forked kernels share the pages of what was loaded, and start in milliseconds. The zygote is
//! their parent: it reaps them and reports how they ended. It says one JSON object per line:
//!
//! ```text
//! → {"connection_file": "…", "cwd": "…"}
//! ← {"ready": true}                        once, when kernels can be forked
//! ← {"preloaded": true}                    at most once: later kernels have the libraries loaded
//! ← {"started": 17}                        for each request, in order
//! ← {"exited": 17, "code": 0} or {"exited": 17, "signal": 9}
//! ```

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashMap, VecDeque},
    io,
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream as StdUnixStream, process::CommandExt},
    },
    path::Path,
    process::{Command, Stdio},
    rc::Rc,
    time::Duration,
};

use rustix::process::Pid;
use serde::Deserialize;
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Mutex, Notify, oneshot, watch},
    task::JoinHandle,
    time::timeout,
};

use super::{Exit, Process, process::prefer_for_oom};

/// Heavy imports on a cold disk.
const LOAD: Duration = Duration::from_mins(1);
const FORK: Duration = Duration::from_secs(10);
const MAX_LINE: u64 = 4096;

pub(super) struct Zygote {
    /// Ended when this is dropped; its kernels then end too.
    process: Process,
    sink: Mutex<OwnedWriteHalf>,
    shared: Rc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    ready: Cell<Option<oneshot::Sender<()>>>,
    started: RefCell<VecDeque<oneshot::Sender<Started>>>,
    kernels: RefCell<HashMap<i32, watch::Sender<Option<Exit>>>>,
    preloaded: Rc<Notify>,
}

/// A new kernel, and where its end will be reported.
struct Started {
    pid: Pid,
    exit: watch::Receiver<Option<Exit>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Ready {
        #[serde(rename = "ready")]
        _ready: bool,
    },
    Preloaded {
        #[serde(rename = "preloaded")]
        _preloaded: bool,
    },
    Started {
        started: i32,
    },
    Exited {
        exited: i32,
        code: Option<i32>,
        signal: Option<i32>,
    },
}

impl Zygote {
    /// `preloaded` hears of it when its kernels are worth more than those before.
    pub(super) async fn start(
        argv: &[String],
        env: &BTreeMap<String, String>,
        preloaded: Rc<Notify>,
    ) -> io::Result<Self> {
        let (near, far) = StdUnixStream::pair()?;
        near.set_nonblocking(true)?;
        let (program, arguments) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let child = Command::new(program)
            .args(arguments)
            .envs(env)
            .stdin(Stdio::from(OwnedFd::from(far)))
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .process_group(0)
            .spawn()?;
        let process = Process::adopt(&child)?;
        let (source, sink) = UnixStream::from_std(near)?.into_split();
        let (tell_ready, ready) = oneshot::channel();
        let shared = Rc::new(Shared {
            ready: Cell::new(Some(tell_ready)),
            preloaded,
            ..Shared::default()
        });
        let task = tokio::task::spawn_local(read(Rc::clone(&shared), source));
        let zygote = Self {
            process,
            sink: Mutex::new(sink),
            shared,
            task,
        };
        match timeout(LOAD, ready).await {
            Ok(Ok(())) => Ok(zygote),
            Ok(Err(_)) => Err(io::Error::other("it ended while it was loading")),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    pub(super) fn is_alive(&self) -> bool {
        self.process.exit().is_none() && !self.task.is_finished()
    }

    /// The new kernel keeps its zygote alive, for it would die with it.
    pub(super) async fn fork(
        self: Rc<Self>,
        connection_file: &Path,
        cwd: &Path,
    ) -> io::Result<Process> {
        let request = json!({"connection_file": connection_file, "cwd": cwd});
        let (sender, started) = oneshot::channel();
        {
            // One lock for both: answers come in the order of the requests.
            let mut sink = self.sink.lock().await;
            self.shared.started.borrow_mut().push_back(sender);
            timeout(FORK, sink.write_all(format!("{request}\n").as_bytes())).await??;
        }
        let Started { pid, exit } = timeout(FORK, started)
            .await?
            .map_err(|_| io::Error::other("the zygote ended"))?;
        prefer_for_oom(pid);
        Ok(Process::foreign(pid, exit, Some(self)))
    }
}

impl Drop for Zygote {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn read(shared: Rc<Shared>, source: OwnedReadHalf) {
    let mut source = BufReader::new(source);
    let mut line = String::new();
    loop {
        line.clear();
        match (&mut source).take(MAX_LINE).read_line(&mut line).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        match serde_json::from_str(&line) {
            Ok(Line::Ready { .. }) => {
                if let Some(ready) = shared.ready.take() {
                    let _no_longer_waiting = ready.send(());
                }
            }
            Ok(Line::Preloaded { .. }) => shared.preloaded.notify_one(),
            Ok(Line::Started { started }) => {
                let Some(pid) = Pid::from_raw(started) else {
                    break;
                };
                let (sender, exit) = watch::channel(None);
                shared.kernels.borrow_mut().insert(started, sender);
                let waiting = shared.started.borrow_mut().pop_front();
                let unwanted = match waiting {
                    Some(waiting) => waiting.send(Started { pid, exit }).err(),
                    None => Some(Started { pid, exit }),
                };
                if let Some(Started { pid, exit }) = unwanted {
                    drop(Process::foreign(pid, exit, None));
                }
            }
            Ok(Line::Exited {
                exited,
                code,
                signal,
            }) => {
                let exit = match (code, signal) {
                    (Some(code), _) => Exit::Code(code),
                    (None, signal) => Exit::by_signal(signal.unwrap_or(libc::SIGKILL)),
                };
                if let Some(kernel) = shared.kernels.borrow_mut().remove(&exited) {
                    kernel.send_replace(Some(exit));
                }
            }
            Err(_) => break,
        }
    }
    // Whoever waits for it need not wait longer, and its kernels go with it.
    shared.ready.take();
    shared.started.borrow_mut().clear();
    for (_, kernel) in shared.kernels.borrow_mut().drain() {
        kernel.send_replace(Some(Exit::Signal(libc::SIGKILL)));
    }
}
