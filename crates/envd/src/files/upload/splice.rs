//! From a socket into a file without a detour through our memory: the pages in which bytes arrived
//! go through a pipe, and are copied once, into the page cache.

use std::{fs::File, io, os::fd::OwnedFd, sync::Arc};

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::{io::Interest, net::TcpStream, time::timeout};

use super::{body::IDLE, stalled};
use crate::{files::threads::blocking, http::reply::Failure};

/// Moved by a file thread in one go, as long as there is something: the sender fills the socket
/// again meanwhile.
const STEP: u64 = 1 << 20;
/// One page each, but a page may be a large one.
const PIPE: usize = 256 << 10;

/// Why it ended early.
enum SpliceError {
    Receiving(io::Error),
    Writing(io::Error),
}

struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
}

/// Appends `left` bytes of the socket to the file, as it stands. `left` is how many are still in
/// the socket, also after a failure.
pub(super) async fn receive(
    socket: &Arc<TcpStream>,
    file: &Arc<File>,
    left: &mut u64,
    write_failed: impl Fn(&io::Error) -> Failure,
) -> Result<(), Failure> {
    let mut pipe = Pipe::new().map_err(|error| write_failed(&error))?;
    while *left > 0 {
        timeout(IDLE, socket.readable())
            .await
            .map_err(|_| stalled())?
            .map_err(|error| broke_off(&error))?;
        let (from, to, most) = (Arc::clone(socket), Arc::clone(file), *left);
        let (moved, result);
        (pipe, moved, result) = blocking(move || {
            let (moved, result) = pipe.step(&from, &to, most.min(STEP));
            (pipe, moved, result)
        })
        .await
        .map_err(|error| write_failed(&error))?;
        *left -= moved;
        result.map_err(|broken| match broken {
            SpliceError::Receiving(error) => broke_off(&error),
            SpliceError::Writing(error) => write_failed(&error),
        })?;
    }
    Ok(())
}

fn broke_off(error: &io::Error) -> Failure {
    Failure::bad_request(format!("reading the upload: {error}"))
}

impl Pipe {
    fn new() -> io::Result<Self> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // A user who has many pipes gets small ones; it only takes longer then.
        let _refused = fcntl_setpipe_size(&writer, PIPE);
        Ok(Self { reader, writer })
    }

    /// How much was taken from the socket, and why it was not all that was asked for, unless there
    /// is just nothing more for now. Blocking.
    fn step(&self, socket: &TcpStream, file: &File, most: u64) -> (u64, Result<(), SpliceError>) {
        let mut moved = 0;
        while moved < most {
            let want = usize::try_from(most - moved).unwrap_or(usize::MAX);
            let came = socket.try_io(Interest::READABLE, || {
                let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
                retry(|| splice(socket, None, &self.writer, None, want, flags))
            });
            let came = match came {
                Ok(0) => {
                    let cut = io::ErrorKind::UnexpectedEof.into();
                    return (moved, Err(SpliceError::Receiving(cut)));
                }
                Ok(came) => came,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return (moved, Err(SpliceError::Receiving(error))),
            };
            moved += came as u64;
            if let Err(error) = self.empty_into(file, came) {
                return (moved, Err(SpliceError::Writing(error)));
            }
        }
        (moved, Ok(()))
    }

    fn empty_into(&self, file: &File, mut left: usize) -> io::Result<()> {
        while left > 0 {
            let wrote = retry(|| splice(&self.reader, None, file, None, left, SpliceFlags::MOVE))?;
            if wrote == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            left -= wrote;
        }
        Ok(())
    }
}

fn retry(splice: impl FnMut() -> rustix::io::Result<usize>) -> io::Result<usize> {
    Ok(rustix::io::retry_on_intr(splice)?)
}
