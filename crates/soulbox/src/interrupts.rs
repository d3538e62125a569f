//! SIGINT, SIGTERM and SIGHUP as a future.

use std::io;

use anyhow::Result;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{report, sandbox::Interrupted};

/// Work that Ctrl-C only stops watching: `leave` says what goes on.
pub(crate) async fn unless_interrupted<T>(work: impl Future<Output = T>, leave: &str) -> Result<T> {
    let mut interrupts = Interrupts::listen()?;
    tokio::select! {
        done = work => Ok(done),
        code = interrupts.next() => {
            report::note(&format!("interrupted: {leave}"));
            Err(Interrupted(code).into())
        }
    }
}

/// From the moment this exists the signals no longer end the program by themselves: whoever makes
/// one must wait on it.
#[derive(Debug)]
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Interrupts {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// The next one, as the exit code that a shell would show.
    pub(crate) async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => 128 + 2,
            _ = self.terminate.recv() => 128 + 15,
            _ = self.hangup.recv() => 128 + 1,
        }
    }
}
