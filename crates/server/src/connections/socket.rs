//! A guest's socket. It holds the guest's place wherever it goes, also into a tunnel, and notes
//! when the client is slow to take what it asked for; too slow, when the place is needed, and the
//! next write fails.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::guests::{Guest, Presence, Stall};

#[derive(Debug)]
pub(super) struct GuestSocket {
    // In this order: the descriptor is free before the place is.
    socket: TcpStream,
    stall: Option<Stall>,
    guest: Guest,
}

impl GuestSocket {
    pub(super) fn new(socket: TcpStream, guest: Guest) -> Self {
        Self {
            socket,
            stall: None,
            guest,
        }
    }

    pub(super) fn presence(&self) -> Presence {
        self.guest.presence()
    }

    fn note(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() && self.stall.is_none() {
            return written;
        }
        let guest = &self.guest;
        let stall = self.stall.get_or_insert_with(|| guest.presence().stalls());
        // A cut is final, even if the client reads in the same moment.
        if stall.poll_cut(cx).is_ready() {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the client does not read, and others need its place",
            )));
        }
        if written.is_ready() {
            self.stall = None;
        }
        written
    }
}

impl AsyncRead for GuestSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }
}

impl AsyncWrite for GuestSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, buf);
        self.note(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, bufs);
        self.note(cx, written)
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
