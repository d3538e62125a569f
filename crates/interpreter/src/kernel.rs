//! Kernels: a process that runs cells one after the other and keeps what they made.
//!
//! Two kinds: whatever speaks Jupyter's protocol ([`jupyter`]), and a shell that needs no more than
//! pipes ([`bash`]). Both report an execution as [`Event`]s.

mod bash;
mod jupyter;
mod launcher;
mod process;
mod shortage;
mod spec;
mod zygote;

use tokio::sync::mpsc;

pub(crate) use self::{
    launcher::{Error, Launcher},
    process::{Exit, Process},
    spec::Folders,
};
use crate::mime::Bundle;

/// One kernel, until its process ends. Dropping it ends the process and all that it started.
pub(crate) enum Kernel {
    Jupyter(jupyter::Kernel),
    Bash(bash::Kernel),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

#[derive(Debug)]
pub(crate) enum Event {
    /// The kernel took the cell; its number.
    Accepted(u64),
    Text(Stream, String),
    /// Something to show; whether it is the value of the cell's last expression.
    Result(Bundle, bool),
    Failed(Failure),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) traceback: String,
}

/// How a cell ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// The kernel dropped it unexecuted.
    Aborted,
}

/// What comes out of a running cell. Dropping it does not end the cell; the rest is thrown away.
pub(crate) struct Execution {
    steps: mpsc::Receiver<Step>,
}

enum Step {
    Event(Event),
    End(Outcome),
}

/// Small, so that output which the client does not take stays where it was made: the kernel waits.
const STEPS_AHEAD: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A user's cell: counted, kept in the history, its events wanted.
    Visible,
    /// Our own: leaves no trace.
    Silent,
}

impl Kernel {
    pub(crate) async fn execute(&self, code: &str, mode: Mode) -> Result<Execution, KernelLost> {
        match self {
            Self::Jupyter(kernel) => kernel.execute(code, mode).await,
            Self::Bash(kernel) => kernel.execute(code, mode).await,
        }
    }

    pub(crate) async fn interrupt(&self) {
        match self {
            Self::Jupyter(kernel) => kernel.interrupt().await,
            Self::Bash(kernel) => kernel.process().interrupt(),
        }
    }

    pub(crate) fn process(&self) -> &Process {
        match self {
            Self::Jupyter(kernel) => kernel.process(),
            Self::Bash(kernel) => kernel.process(),
        }
    }
}

/// The connection to the kernel is gone: as a rule, because the kernel is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the connection to the kernel was lost")]
pub(crate) struct KernelLost;

impl Execution {
    fn channel() -> (mpsc::Sender<Step>, Self) {
        let (sender, steps) = mpsc::channel(STEPS_AHEAD);
        (sender, Self { steps })
    }

    /// The next event, or how the cell ended. Can be cancelled.
    pub(crate) async fn next(&mut self) -> Result<Next, KernelLost> {
        match self.steps.recv().await {
            Some(Step::Event(event)) => Ok(Next::Event(event)),
            Some(Step::End(outcome)) => Ok(Next::End(outcome)),
            None => Err(KernelLost),
        }
    }

    /// Waits for the end and throws the events away.
    pub(crate) async fn finish(mut self) -> Result<Outcome, KernelLost> {
        loop {
            if let Next::End(outcome) = self.next().await? {
                return Ok(outcome);
            }
        }
    }
}

#[derive(Debug)]
pub(crate) enum Next {
    Event(Event),
    End(Outcome),
}

impl Failure {
    /// An error of ours and not of the code, under one of the names that clients know.
    pub(crate) fn new(name: &str, value: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            value: value.into(),
            traceback: String::new(),
        }
    }

    pub(crate) fn too_large(kind: &str) -> Self {
        Self::new(
            "OutputTooLarge",
            format!("a single {kind} of more than 64 MiB was left out: write it to a file"),
        )
    }
}
