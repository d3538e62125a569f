//! A connection that hyper gave back: the rest of its request, our answer, and its end.

use std::{collections::VecDeque, io, sync::Arc, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use rustix::net::Shutdown;
use tokio::{net::TcpStream, time::timeout};

/// Read at a time: each read answers the sender, which costs more than its bytes.
const READ: usize = 256 << 10;
/// Whoever has got everything closes the connection; who has not yet is not cut off by us.
const FAREWELL: Duration = Duration::from_secs(5);
/// The rest of an upload that was refused, as hyper's connections receive it.
const FAREWELL_BYTES: usize = 16 << 20;

/// The body of a request whose length is known, in its socket but for what was read before.
pub(crate) struct SocketBody {
    early: VecDeque<Bytes>,
    socket: Arc<TcpStream>,
    /// Still in the socket, or to come.
    left: u64,
}

impl SocketBody {
    /// `incoming` and then `read_buffer` hold what hyper took. Its connection must be gone.
    pub(super) async fn new(
        socket: Arc<TcpStream>,
        length: u64,
        mut incoming: Incoming,
        read_buffer: Bytes,
    ) -> Self {
        let (mut early, mut left) = (VecDeque::new(), length);
        let mut take = |mut chunk: Bytes| {
            chunk.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            left -= chunk.len() as u64;
            if !chunk.is_empty() {
                early.push_back(chunk);
            }
        };
        while let Some(Ok(frame)) = incoming.frame().await {
            frame.into_data().map(&mut take).ok();
        }
        take(read_buffer);
        Self {
            early,
            socket,
            left,
        }
    }

    /// What was read before, chunk by chunk.
    pub(crate) fn early(&mut self) -> Option<Bytes> {
        self.early.pop_front()
    }

    /// For whoever takes the rest in another way.
    pub(crate) fn rest(&mut self) -> (&Arc<TcpStream>, &mut u64) {
        (&self.socket, &mut self.left)
    }

    /// `None` at its end.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Bytes>> {
        if let Some(chunk) = self.early() {
            return Ok(Some(chunk));
        }
        if self.left == 0 {
            return Ok(None);
        }
        loop {
            self.socket.readable().await?;
            let most = READ.min(usize::try_from(self.left).unwrap_or(READ));
            let mut chunk = BytesMut::with_capacity(most);
            match self.socket.try_read_buf(&mut (&mut chunk).limit(most)) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    self.left -= read as u64;
                    return Ok(Some(chunk.freeze()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Gives up when the client takes nothing for `limit`.
pub(super) async fn write_all(
    socket: &TcpStream,
    mut bytes: &[u8],
    limit: Duration,
) -> io::Result<()> {
    while !bytes.is_empty() {
        writable(socket, limit).await?;
        match socket.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

pub(super) async fn writable(socket: &TcpStream, limit: Duration) -> io::Result<()> {
    timeout(limit, socket.writable())
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// Closes our side, and waits a moment for the client's: with bytes of the client unread, closing
/// would take back what is on its way to it.
pub(super) async fn close_gracefully(socket: &TcpStream) {
    if rustix::net::shutdown(socket, Shutdown::Write).is_err() {
        return;
    }
    let rest = async {
        let (mut left, mut scratch) = (FAREWELL_BYTES, vec![0; 64 << 10]);
        while left > 0 && socket.readable().await.is_ok() {
            match socket.try_read(&mut scratch) {
                Ok(read @ 1..) => left = left.saturating_sub(read),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(0) | Err(_) => return,
            }
        }
    };
    let _late = timeout(FAREWELL, rest).await;
}
