//! One process: its output, its input, its end.

use std::{
    cell::{Cell, RefCell},
    io,
    os::fd::OwnedFd,
    rc::Rc,
    time::Duration,
};

use bytes::Bytes;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::{
    io::unix::AsyncFd,
    sync::{Mutex, Notify},
};

use super::{
    ring::{Budget, Next, Ring},
    spawn,
};
use crate::proto::{
    OutputStream,
    process::{EndEvent, ProcessConfig},
};

/// A process that takes no input for this long gets no more of this message.
const INPUT_STALLED: Duration = Duration::from_mins(10);

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(i32),
    Signal(i32),
}

/// The end of a process, with what is known of its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    exit: Exit,
    /// The kernel killed it for lack of memory; the sandbox may use so many bytes.
    shortage: Option<u64>,
}

impl End {
    /// E2B's fields; the reason, which E2B does not report, is in the error's text.
    pub(crate) fn event(self) -> EndEvent {
        let mut event = match self.exit {
            Exit::Code(code) => EndEvent::by_code(code),
            Exit::Signal(signal) => EndEvent::by_signal(signal),
        };
        if let (Some(error), Some(reason)) = (&mut event.error, self.reason()) {
            *error = format!("{error} ({reason})");
        }
        event
    }

    fn reason(self) -> Option<String> {
        let limit = self.shortage?;
        let whom = match self.exit {
            Exit::Signal(_) => "it",
            Exit::Code(_) => "a process of this command",
        };
        let allowance = if limit > 0 {
            format!(": the sandbox may use {} MiB", limit >> 20)
        } else {
            String::new()
        };
        Some(format!(
            "out of memory: the kernel killed {whom}{allowance}"
        ))
    }

    /// The end event for a reader of the output. E2B's Python client shows the error's text only to
    /// those who ask for it; everybody sees what was written.
    fn error_text(self, terminal: bool) -> Option<String> {
        let (before, after) = if terminal {
            ("\r\n", "\r\n")
        } else {
            ("", "\n")
        };
        Some(format!("{before}soulbox: {}{after}", self.reason()?))
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    #[error("stdin is not enabled or already closed: start the process with stdin")]
    NoStdin,
    #[error("the process has a terminal: send pty input, not stdin")]
    IsTerminal,
    #[error("the process has no terminal: send stdin, not pty input")]
    NotTerminal,
    #[error("the process does not read its input")]
    Stalled,
    #[error("writing input: {0}")]
    Write(#[from] io::Error),
}

/// Those that SSH's clients send besides the two of E2B's.
pub(crate) fn passed_on(number: i32) -> Option<Signal> {
    let known = [
        Signal::HUP,
        Signal::INT,
        Signal::QUIT,
        Signal::USR1,
        Signal::USR2,
    ];
    known.into_iter().find(|signal| signal.as_raw() == number)
}

type Handle = Rc<AsyncFd<OwnedFd>>;

pub(crate) struct Process {
    pub(crate) pid: Pid,
    /// In which it was started.
    group: Pid,
    pub(crate) config: ProcessConfig,
    pub(crate) tag: Option<String>,
    ring: RefCell<Ring>,
    /// New output, or the end.
    changed: Notify,
    /// A reader moved on or left.
    room: Notify,
    /// The program runs: its exec succeeded.
    pub(super) started: Cell<bool>,
    exit: Cell<Option<End>>,
    /// How many had died for lack of memory before it started.
    pub(super) shortages_before: u64,
    ended: Cell<bool>,
    /// Streams that somebody inside may still write to.
    open_streams: Cell<u8>,
    /// Killed by us: its streams are not waited for, as children may hold them for ever.
    abandoned: Cell<bool>,
    pub(super) abandon: Notify,
    terminal: RefCell<Option<Handle>>,
    is_terminal: bool,
    stdin: RefCell<Option<Handle>>,
    stdin_closed: Notify,
    /// Keeps the messages of several senders whole.
    input_order: Mutex<()>,
}

impl Process {
    pub(super) fn new(
        (pid, group): (Pid, Pid),
        config: ProcessConfig,
        tag: Option<String>,
        budget: Budget,
        stdin: Option<Handle>,
        terminal: Option<Handle>,
        shortages_before: u64,
    ) -> Self {
        Self {
            pid,
            group,
            config,
            tag,
            ring: RefCell::new(Ring::new(budget)),
            changed: Notify::new(),
            room: Notify::new(),
            started: Cell::new(false),
            exit: Cell::new(None),
            shortages_before,
            ended: Cell::new(false),
            open_streams: Cell::new(if terminal.is_some() { 1 } else { 2 }),
            abandoned: Cell::new(false),
            abandon: Notify::new(),
            is_terminal: terminal.is_some(),
            terminal: RefCell::new(terminal),
            stdin: RefCell::new(stdin),
            stdin_closed: Notify::new(),
            input_order: Mutex::new(()),
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// How it ended, once its output is complete.
    pub(crate) fn end(&self) -> Option<End> {
        if self.ended.get() {
            self.exit.get()
        } else {
            None
        }
    }

    pub(crate) fn is_listed(&self) -> bool {
        self.started.get() && !self.ended.get()
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned.get()
    }

    // Output.

    pub(super) fn push(&self, stream: OutputStream, bytes: &[u8]) {
        self.ring
            .borrow_mut()
            .push(stream, Bytes::copy_from_slice(bytes));
        self.changed.notify_waiters();
    }

    pub(super) async fn wait_for_room(&self, bytes: usize) {
        loop {
            let moved = self.room.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            if self.has_room(bytes) {
                return;
            }
            moved.await;
        }
    }

    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.ring.borrow().has_room(bytes)
    }

    pub(crate) fn subscribe(self: &Rc<Self>, replay: bool) -> Subscription {
        let id = self.ring.borrow_mut().subscribe(replay);
        Subscription {
            process: Rc::clone(self),
            id,
        }
    }

    pub(super) fn forget_output(&self) {
        self.ring.borrow_mut().clear();
    }

    // The end.

    /// `shortage`: it died for lack of memory, of which the sandbox may use so many bytes.
    pub(super) fn exited(&self, exit: Exit, shortage: Option<u64>) {
        self.exit.set(Some(End { exit, shortage }));
        if self.abandoned.get() {
            self.abandon.notify_waiters();
        }
    }

    pub(super) fn stream_closed(&self) {
        self.open_streams
            .set(self.open_streams.get().saturating_sub(1));
    }

    /// Becomes ended when everything is in. True only once.
    pub(super) fn try_end(&self) -> bool {
        let Some(end) = self.exit.get() else {
            return false;
        };
        if self.ended.get() || self.open_streams.get() > 0 {
            return false;
        }
        if let Some(words) = end.error_text(self.is_terminal) {
            let stream = if self.is_terminal {
                OutputStream::Pty
            } else {
                OutputStream::Stderr
            };
            self.push(stream, words.as_bytes());
        }
        self.ended.set(true);
        self.close_input();
        self.terminal.borrow_mut().take();
        self.changed.notify_waiters();
        true
    }

    pub(super) fn has_exited(&self) -> bool {
        self.exit.get().is_some()
    }

    pub(crate) async fn ended(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.ended.get() {
                return;
            }
            changed.await;
        }
    }

    /// Kills it and everything in its group, also in one that it made and leads by now (`setsid`);
    /// what it left in its pipes is still delivered.
    pub(crate) fn kill(&self) {
        self.abandon_streams();
        let _already_gone = kill_process_group(self.group, Signal::KILL);
        if self.group != self.pid {
            let _none_of_its_own = kill_process_group(self.pid, Signal::KILL);
        }
        if !self.has_exited() {
            let _already_gone = kill_process(self.pid, Signal::KILL);
        }
    }

    /// Asks it to end. Its children are its own business.
    pub(crate) fn terminate(&self) {
        self.abandon_streams();
        if !self.has_exited() {
            let _already_gone = kill_process(self.pid, Signal::TERM);
        }
    }

    /// As a terminal does it: to its whole group. Of a hangup nobody is left who would read.
    pub(crate) fn signal(&self, signal: Signal) {
        if signal == Signal::HUP {
            self.abandon_streams();
        }
        let _already_gone = kill_process_group(self.group, signal);
        if self.group != self.pid {
            let _none_of_its_own = kill_process_group(self.pid, signal);
        }
    }

    fn abandon_streams(&self) {
        self.abandoned.set(true);
        if self.has_exited() {
            self.abandon.notify_waiters();
        }
    }

    // Input.

    pub(crate) async fn write_stdin(&self, data: &[u8]) -> Result<(), InputError> {
        if self.is_terminal {
            return Err(InputError::IsTerminal);
        }
        let stdin = self.stdin.borrow().clone().ok_or(InputError::NoStdin)?;
        self.write(&stdin, data).await
    }

    pub(crate) async fn write_terminal(&self, data: &[u8]) -> Result<(), InputError> {
        let terminal = self.terminal.borrow().clone();
        match terminal {
            Some(terminal) => self.write(&terminal, data).await,
            None if self.is_terminal => Err(InputError::NoStdin),
            None => Err(InputError::NotTerminal),
        }
    }

    async fn write(&self, to: &AsyncFd<OwnedFd>, mut data: &[u8]) -> Result<(), InputError> {
        let _turn = self.input_order.lock().await;
        let closed = self.stdin_closed.notified();
        tokio::pin!(closed);
        while !data.is_empty() {
            let written = tokio::select! {
                written = to.async_io(tokio::io::Interest::WRITABLE, |fd| {
                    Ok(rustix::io::write(fd, data)?)
                }) => written?,
                () = &mut closed => return Err(InputError::NoStdin),
                () = tokio::time::sleep(INPUT_STALLED) => return Err(InputError::Stalled),
            };
            data = data.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// End of input. Closing twice is fine.
    pub(crate) fn close_input(&self) {
        self.stdin.borrow_mut().take();
        self.stdin_closed.notify_waiters();
    }

    pub(crate) fn resize(&self, cols: u16, rows: u16) -> Result<(), InputError> {
        let terminal = self.terminal.borrow();
        let terminal = terminal.as_ref().ok_or(InputError::NotTerminal)?;
        rustix::termios::tcsetwinsize(terminal.get_ref(), spawn::window(cols, rows))
            .map_err(|e| InputError::Write(e.into()))
    }
}

/// A reader of the output. Dropping it lets the process run on.
pub(crate) struct Subscription {
    process: Rc<Process>,
    id: u64,
}

impl Subscription {
    pub(crate) fn next(&self) -> Next {
        let next = self.process.ring.borrow_mut().next(self.id);
        if matches!(next, Next::Chunk(..)) {
            self.process.room.notify_waiters();
        }
        next
    }

    /// Resolves when there may be something new. Ask for it *before* asking `next`.
    pub(crate) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.process.changed.notified()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.process.ring.borrow_mut().unsubscribe(self.id);
        self.process.room.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_memory_is_told_where_clients_look() {
        let end = |exit, shortage| End { exit, shortage };
        let killed = end(Exit::Signal(9), Some(512 << 20));
        let event = killed.event();
        assert_eq!((event.exit_code, event.exited), (-1, false));
        assert_eq!(event.status, "signal: killed", "as E2B says it");
        let reason = "out of memory: the kernel killed it: the sandbox may use 512 MiB";
        assert_eq!(event.error, Some(format!("signal: killed ({reason})")));
        assert_eq!(
            killed.error_text(false),
            Some(format!("soulbox: {reason}\n"))
        );

        let child = end(Exit::Code(137), Some(512 << 20)).event();
        assert!(
            child
                .error
                .is_some_and(|text| text.starts_with("exit status 137 (out of memory"))
        );
        let by_hand = end(Exit::Signal(9), None);
        assert_eq!(by_hand.event().error.as_deref(), Some("signal: killed"));
        assert_eq!(by_hand.error_text(true), None);
    }
}
