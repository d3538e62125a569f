//! SIGINT, SIGTERM and SIGHUP as a future.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

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
