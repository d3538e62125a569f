//! One server at a time claims addresses.
//!
//! Looking whether a range is free and taking it are two steps for the kernel: servers that start at
//! the same moment would both find it free, and both keep it. The lock is on the network namespace
//! itself: exactly what is shared, and nothing is left of it when its holder is killed.

use std::fs::File;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::Error;
use crate::error::Doing;

/// Others hold it for milliseconds. Shorter than a change of the network may take.
const PATIENCE: Duration = Duration::from_secs(8);
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

/// Ends when it is dropped, or with its process.
#[derive(Debug)]
pub(crate) struct Turn {
    _namespace: File,
}

impl Turn {
    /// Blocks: for threads that may.
    pub(crate) fn take() -> Result<Self, Error> {
        let doing = || "waiting for other servers that take addresses".to_owned();
        let namespace = File::open("/proc/thread-self/ns/net").doing(doing)?;
        let until = Instant::now() + PATIENCE;
        loop {
            match flock(&namespace, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    return Ok(Self {
                        _namespace: namespace,
                    });
                }
                Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < until => {
                    thread::sleep(BETWEEN_TRIES);
                }
                Err(Errno::WOULDBLOCK) => {
                    return Err(Error::TimedOut {
                        doing: "waiting for another process that locks the network namespace \
                                (see it with `lslocks`)",
                        seconds: PATIENCE.as_secs(),
                    });
                }
                Err(error) => return Err(error).doing(doing),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_waits_for_the_first() {
        let first = Turn::take().unwrap();
        let (waiting, starts) = std::sync::mpsc::channel();
        let (done, ends) = std::sync::mpsc::channel();
        let second = thread::spawn(move || {
            waiting.send(()).unwrap();
            let turn = Turn::take();
            done.send(()).unwrap();
            turn
        });
        starts.recv().unwrap();
        assert!(ends.recv_timeout(BETWEEN_TRIES * 3).is_err());
        drop(first);
        assert!(second.join().unwrap().is_ok());
    }
}
