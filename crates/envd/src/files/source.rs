//! Streams a file into a response without ever holding more than a chunk of it.

use std::{
    io::{self, Read, Write},
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use tokio::sync::mpsc;

use super::threads::blocking;
use crate::http::body::{Body, BodyError};

const CHUNK: usize = 128 << 10;
/// A client that takes nothing for this long is cut.
pub(crate) const STALLED: Duration = Duration::from_mins(5);

/// So many bytes of a file, of which it has more than are worth keeping in memory.
pub(crate) struct FilePart {
    file: OwnedFd,
    at: u64,
    left: u64,
}

impl FilePart {
    /// The file stands at `first`.
    pub(super) fn new(file: OwnedFd, first: u64, length: u64) -> Self {
        Self {
            file,
            at: first,
            left: length,
        }
    }

    pub(crate) fn length(&self) -> u64 {
        self.left
    }

    pub(crate) fn stream(self) -> Body {
        stream(self.file, Some(self.left), false)
    }

    /// Lets the kernel move some of it into a socket; how much it was. Blocking.
    pub(crate) fn send_some(&mut self, socket: impl AsFd, most: usize) -> io::Result<usize> {
        let most = most.min(usize::try_from(self.left).unwrap_or(most));
        let sent = rustix::fs::sendfile(socket, &self.file, Some(&mut self.at), most)?;
        if sent == 0 && most > 0 {
            // Somebody cut the file while it was sent.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left = self.left.saturating_sub(sent as u64);
        Ok(sent)
    }
}

pub(super) type Frames = mpsc::Sender<Result<Bytes, BodyError>>;

/// The bytes of `file` from where it stands, `remaining` of them or (`None`) until its end.
pub(super) fn stream(file: OwnedFd, remaining: Option<u64>, gzip: bool) -> Body {
    let (frames, receiver) = mpsc::channel(1);
    tokio::task::spawn_local(async move {
        let sent = if gzip {
            send_compressed(file, &frames).await
        } else {
            send_plain(file, remaining, &frames).await
        };
        if let Err(error) = sent {
            // Aborts the response: a short body must not look complete.
            let _gone = frames.try_send(Err(error.into()));
        }
    });
    Body::stream(receiver)
}

/// Reads at most `limit` bytes. What would block (a strange file of /proc) counts as the end.
pub(super) fn read_chunk(file: &OwnedFd, limit: usize) -> io::Result<Vec<u8>> {
    let mut chunk = Vec::with_capacity(limit);
    loop {
        match rustix::io::read(file, rustix::buffer::spare_capacity(&mut chunk)) {
            Ok(_) | Err(rustix::io::Errno::AGAIN) => return Ok(chunk),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

async fn send_plain(
    mut file: OwnedFd,
    mut remaining: Option<u64>,
    frames: &Frames,
) -> io::Result<()> {
    loop {
        let limit = match remaining {
            Some(0) => return Ok(()),
            Some(left) => CHUNK.min(usize::try_from(left).unwrap_or(CHUNK)),
            None => CHUNK,
        };
        let chunk;
        (file, chunk) = blocking(move || {
            let chunk = read_chunk(&file, limit);
            (file, chunk)
        })
        .await?;
        let chunk = chunk?;
        if chunk.is_empty() {
            return match remaining {
                // Somebody cut the file while it was sent.
                Some(_) => Err(io::ErrorKind::UnexpectedEof.into()),
                None => Ok(()),
            };
        }
        remaining = remaining.map(|left| left - chunk.len() as u64);
        if !send(frames, chunk).await {
            return Ok(());
        }
    }
}

async fn send_compressed(file: OwnedFd, frames: &Frames) -> io::Result<()> {
    let mut state = (
        std::fs::File::from(file),
        GzEncoder::new(Vec::new(), Compression::fast()),
    );
    loop {
        let result;
        (state, result) = blocking(move || {
            let result = compress_chunk(&mut state.0, &mut state.1);
            (state, result)
        })
        .await?;
        match result? {
            Some(chunk) if chunk.is_empty() => {}
            Some(chunk) => {
                if !send(frames, chunk).await {
                    return Ok(());
                }
            }
            None => {
                let rest = state.1.finish()?;
                send(frames, rest).await;
                return Ok(());
            }
        }
    }
}

/// `None` at the end of the file.
fn compress_chunk(
    file: &mut std::fs::File,
    encoder: &mut GzEncoder<Vec<u8>>,
) -> io::Result<Option<Vec<u8>>> {
    let mut plain = vec![0; CHUNK];
    let read = match file.read(&mut plain) {
        Ok(read) => read,
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => 0,
        Err(e) => return Err(e),
    };
    if read == 0 {
        return Ok(None);
    }
    encoder.write_all(&plain[..read])?;
    Ok(Some(std::mem::take(encoder.get_mut())))
}

/// False when the client is gone or asleep.
async fn send(frames: &Frames, chunk: Vec<u8>) -> bool {
    matches!(
        tokio::time::timeout(STALLED, frames.send(Ok(chunk.into()))).await,
        Ok(Ok(()))
    )
}
