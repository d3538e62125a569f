//! A client's socket with a write timeout. It owns the connection's permit wherever it goes, also
//! into a tunnel.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::Sleep,
};

use super::{
    WRITE_TIMEOUT,
    limiter::{ConnectionHandle, ConnectionPermit, InFlight},
};

/// The type of the first record of a TLS connection, and no letter of any HTTP method.
const TLS_HANDSHAKE: u8 = 0x16;

#[derive(Debug)]
pub(super) struct LimitedSocket {
    // In this order: the descriptor is closed before the permit is given back.
    socket: TcpStream,
    stall: Option<Stall>,
    permit: ConnectionPermit,
}

/// Bytes wait to be written and the socket takes none.
#[derive(Debug)]
struct Stall {
    timeout: Pin<Box<Sleep>>,
    _in_flight: InFlight,
}

impl LimitedSocket {
    pub(super) fn new(socket: TcpStream, permit: ConnectionPermit) -> Self {
        Self {
            socket,
            stall: None,
            permit,
        }
    }

    pub(super) fn handle(&self) -> ConnectionHandle {
        self.permit.handle().clone()
    }

    /// Whether the client begins a TLS handshake. Takes nothing out of the socket.
    pub(super) async fn begins_tls(&self) -> io::Result<bool> {
        let mut first = [0];
        match self.socket.peek(&mut first).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(first[0] == TLS_HANDSHAKE),
        }
    }

    fn check(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.stall = None;
            return written;
        }
        let handle = self.permit.handle();
        let stall = self.stall.get_or_insert_with(|| Stall {
            timeout: Box::pin(tokio::time::sleep(WRITE_TIMEOUT)),
            _in_flight: handle.stalled_write(),
        });
        if stall.timeout.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        tracing::debug!("closed a connection whose client takes nothing");
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for LimitedSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }
}

impl AsyncWrite for LimitedSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, buf);
        self.check(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, bufs);
        self.check(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
