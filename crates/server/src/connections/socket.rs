//! A guest's socket. It holds the guest's place wherever it goes, also into a tunnel, and notes
//! when the client is slow to take what it asked for.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::guests::{Guest, Presence, Underway};

#[derive(Debug)]
pub(super) struct GuestSocket {
    // In this order: the descriptor is free before the place is.
    socket: TcpStream,
    stalled: Option<Underway>,
    guest: Guest,
}

impl GuestSocket {
    pub(super) fn new(socket: TcpStream, guest: Guest) -> Self {
        Self {
            socket,
            stalled: None,
            guest,
        }
    }

    pub(super) fn presence(&self) -> Presence {
        self.guest.presence()
    }

    fn note<T>(&mut self, written: Poll<T>) -> Poll<T> {
        match &written {
            Poll::Ready(_) => self.stalled = None,
            Poll::Pending if self.stalled.is_none() => {
                self.stalled = Some(self.guest.presence().stalled_write());
            }
            Poll::Pending => {}
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
        self.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, bufs);
        self.note(written)
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
