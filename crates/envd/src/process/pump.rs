//! Moves what a process writes from its pipe or terminal into its ring.

use std::{
    cell::RefCell,
    io,
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
};

use tokio::io::unix::AsyncFd;

use super::{running::Process, spawn::read_now};
use crate::proto::OutputStream;

pub(super) const PIPE_CHUNK: usize = 32 << 10;
pub(super) const TERMINAL_CHUNK: usize = 16 << 10;
/// After so many chunks in a row others get their turn, however fast the process writes.
const TURN: u32 = 8;

thread_local! {
    /// One read buffer for all processes: nothing is kept in it between reads.
    static SCRATCH: RefCell<[u8; PIPE_CHUNK]> = const { RefCell::new([0; PIPE_CHUNK]) };
}

/// Runs until the last writer is gone, or until the process was killed and reaped.
pub(super) async fn pump(process: Rc<Process>, fd: Rc<AsyncFd<OwnedFd>>, stream: OutputStream) {
    let limit = if stream == OutputStream::Pty {
        TERMINAL_CHUNK
    } else {
        PIPE_CHUNK
    };
    let mut in_a_row = 0;
    loop {
        let abandoned = process.abandon.notified();
        tokio::pin!(abandoned);
        abandoned.as_mut().enable();
        if process.is_abandoned() && process.has_exited() {
            drain(&process, &fd, stream, limit);
            break;
        }
        tokio::select! {
            () = process.wait_for_room(limit) => {}
            () = &mut abandoned => continue,
        }
        let mut ready = tokio::select! {
            ready = fd.readable() => match ready {
                Ok(ready) => ready,
                Err(_) => break,
            },
            () = &mut abandoned => continue,
        };
        match ready.try_io(|fd| read_into(&process, fd.get_ref(), stream, limit)) {
            Ok(Ok(0) | Err(_)) => break, // a terminal ends with EIO
            Ok(Ok(_)) => in_a_row += 1,
            Err(_would_block) => in_a_row = 0,
        }
        if in_a_row >= TURN {
            in_a_row = 0;
            tokio::task::yield_now().await;
        }
    }
}

/// What is in the pipe already, and not more than fits in the ring: a child of the killed process
/// could write for ever.
fn drain(process: &Process, fd: &AsyncFd<OwnedFd>, stream: OutputStream, limit: usize) {
    const MAX_READS: usize = 8;
    for _ in 0..MAX_READS {
        if !process.has_room(limit) {
            break;
        }
        if !matches!(read_into(process, fd.get_ref(), stream, limit), Ok(1..)) {
            break;
        }
    }
}

fn read_into(
    process: &Process,
    fd: &OwnedFd,
    stream: OutputStream,
    limit: usize,
) -> io::Result<usize> {
    SCRATCH.with_borrow_mut(|buffer| {
        let read = read_now(fd.as_fd(), &mut buffer[..limit])?;
        if read > 0 {
            process.push(stream, &buffer[..read]);
        }
        Ok(read)
    })
}
