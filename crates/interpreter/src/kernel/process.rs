//! A kernel's process: its death noticed, its whole group ended.

use std::{cell::Cell, io, os::fd::OwnedFd, rc::Rc};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, pidfd_open,
    test_kill_process_group, waitid,
};
use tokio::{io::unix::AsyncFd, sync::watch};

use super::{shortage, zygote::Zygote};
use crate::poll::pollable;

/// Above everything else in the sandbox: who runs a user's code is the first to go when memory is
/// short, and the sandbox stays.
const OOM_SCORE: &str = "1000";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(i32),
    Signal(i32),
    /// Killed for lack of memory: the machine's kernel counted it.
    Shortage,
}

/// The leader of a process group of its own.
pub(crate) struct Process {
    pid: Pid,
    exit: watch::Receiver<Option<Exit>>,
    /// Whether we ended it ourselves.
    ended: Cell<bool>,
    /// Whoever must not end before it.
    _parent: Option<Rc<Zygote>>,
}

impl Process {
    /// Takes over a child that was started with `process_group(0)`.
    pub(crate) fn adopt(child: &std::process::Child) -> io::Result<Self> {
        let pid = Pid::from_child(child);
        let pidfd = pollable(pidfd_open(pid, PidfdFlags::empty())?)?;
        let (sender, exit) = watch::channel(None);
        shortage::start_counting();
        prefer_for_oom(pid);
        tokio::task::spawn_local(async move {
            let exit = reap(pid, &pidfd).await;
            sender.send_replace(Some(exit));
        });
        Ok(Self {
            pid,
            exit,
            ended: Cell::new(false),
            _parent: None,
        })
    }

    /// A process that another one reaps, which reports its end through `exit`.
    pub(super) fn foreign(
        pid: Pid,
        exit: watch::Receiver<Option<Exit>>,
        parent: Option<Rc<Zygote>>,
    ) -> Self {
        shortage::start_counting();
        Self {
            pid,
            exit,
            ended: Cell::new(false),
            _parent: parent,
        }
    }

    pub(crate) fn exit(&self) -> Option<Exit> {
        *self.exit.borrow()
    }

    /// Waits for its end. Can be cancelled.
    pub(crate) async fn exited(&self) -> Exit {
        let mut exit = self.exit.clone();
        match exit.wait_for(Option::is_some).await {
            Ok(exit) => (*exit).unwrap_or(Exit::Signal(libc::SIGKILL)),
            // Whoever watched it is gone, and it with him.
            Err(_) => Exit::Signal(libc::SIGKILL),
        }
    }

    /// As Ctrl-C does it: the whole group, so that what the code started stops too.
    pub(crate) fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    pub(crate) fn end(&self) {
        self.ended.set(true);
        self.signal(Signal::KILL);
    }

    pub(crate) fn was_ended_by_us(&self) -> bool {
        self.ended.get()
    }

    fn signal(&self, signal: Signal) {
        // Once it is reaped, its number may be somebody else's.
        if self.exit().is_none() {
            let _gone =
                kill_process_group(self.pid, signal).or_else(|_| kill_process(self.pid, signal));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

async fn reap(pid: Pid, pidfd: &AsyncFd<OwnedFd>) -> Exit {
    loop {
        let _readable = pidfd.readable().await;
        // While it is a zombie its group's number cannot be given to anybody else.
        if test_kill_process_group(pid).is_ok() {
            let _gone = kill_process_group(pid, Signal::KILL);
        }
        match waitid(
            WaitId::Pid(pid),
            WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
        ) {
            Ok(Some(status)) => {
                return match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => Exit::Code(code),
                    (None, signal) => Exit::by_signal(signal.unwrap_or(libc::SIGKILL)),
                };
            }
            Ok(None) => tokio::task::yield_now().await,
            Err(_) => return Exit::Signal(libc::SIGKILL),
        }
    }
}

pub(super) fn prefer_for_oom(pid: Pid) {
    let path = format!("/proc/{}/oom_score_adj", pid.as_raw_nonzero());
    if let Err(error) = std::fs::write(path, OOM_SCORE) {
        eprintln!("soulbox-interpreter: cannot make kernel {pid:?} go first: {error}");
    }
}

impl Exit {
    /// To be called when the end is heard of: what is counted later has killed somebody else.
    pub(super) fn by_signal(signal: i32) -> Self {
        if signal == libc::SIGKILL && shortage::explains_a_death() {
            Self::Shortage
        } else {
            Self::Signal(signal)
        }
    }

    /// The message for a user about a kernel that ended by itself.
    pub(crate) fn reason(self) -> String {
        match self {
            Self::Shortage => {
                "the kernel was killed (signal 9) because the sandbox ran out of memory".to_owned()
            }
            Self::Signal(libc::SIGKILL) => "the kernel was killed (signal 9)".to_owned(),
            Self::Signal(signal) => format!("the kernel was ended by signal {signal}"),
            Self::Code(code) => format!("the kernel exited with status {code}"),
        }
    }
}
