//! How much may wait between the client and the sandbox.
//!
//! russh lets a client send as soon as its bytes were read, whether anybody took them or not. So it is
//! the reading of the pipe that stops when too much waits. One thing must not wait for that: a client
//! that takes output says so in the same pipe. While output waits for it the pipe is read on, or a
//! process that reads no input until its output is gone (`cat`) would stop for ever.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use russh::{ChannelWriteHalf, server::Msg};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::mpsc,
};

/// Of all channels together; the pipe is not read while more waits.
const ENOUGH: usize = 1 << 20;
/// What may wait in any case. A process that reads nothing and writes much leads to it.
const MOST: usize = 64 << 20;

#[derive(Debug, Default)]
pub(crate) struct Gauge {
    waiting: AtomicUsize,
    /// Outputs that wait for the client.
    held_back: AtomicUsize,
    reader: AtomicWaker,
}

impl Gauge {
    fn may_read(&self) -> bool {
        self.waiting.load(SeqCst) < ENOUGH || self.held_back.load(SeqCst) > 0
    }

    fn took(&self, bytes: usize) {
        self.waiting.fetch_sub(bytes, SeqCst);
        self.reader.wake();
    }
}

/// An output that waits for the client.
struct HeldBack<'a>(&'a Gauge);

impl<'a> HeldBack<'a> {
    fn new(gauge: &'a Gauge) -> Self {
        gauge.held_back.fetch_add(1, SeqCst);
        gauge.reader.wake();
        Self(gauge)
    }
}

impl Drop for HeldBack<'_> {
    fn drop(&mut self) {
        self.0.held_back.fetch_sub(1, SeqCst);
    }
}

/// What a client sends on one channel.
#[derive(Debug)]
pub(crate) struct Input {
    receiver: mpsc::UnboundedReceiver<Bytes>,
    gauge: Arc<Gauge>,
}

#[derive(Debug)]
pub(crate) struct InputSender {
    sender: mpsc::UnboundedSender<Bytes>,
    gauge: Arc<Gauge>,
}

/// More waits than there is room for.
#[derive(Debug, thiserror::Error)]
#[error("what runs in the sandbox does not read its input")]
pub(crate) struct TooMuch;

pub(crate) fn input(gauge: &Arc<Gauge>) -> (InputSender, Input) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let (ours, gauge) = (Arc::clone(gauge), Arc::clone(gauge));
    (
        InputSender {
            sender,
            gauge: ours,
        },
        Input { receiver, gauge },
    )
}

impl InputSender {
    pub(crate) fn send(&self, bytes: &[u8]) -> Result<(), TooMuch> {
        let waiting = self.gauge.waiting.fetch_add(bytes.len(), SeqCst) + bytes.len();
        if self.sender.send(Bytes::copy_from_slice(bytes)).is_err() {
            // Nobody reads it any more.
            self.gauge.took(bytes.len());
        }
        if waiting > MOST { Err(TooMuch) } else { Ok(()) }
    }
}

impl Input {
    /// `None`: the client has finished. The bytes no longer count as waiting when `then` is done.
    pub(crate) async fn next<T>(&mut self, then: impl AsyncFnOnce(Bytes) -> T) -> Option<T> {
        let bytes = self.receiver.recv().await?;
        let _waiting = Waiting(&self.gauge, bytes.len());
        Some(then(bytes).await)
    }
}

struct Waiting<'a>(&'a Gauge, usize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.took(self.1);
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        self.receiver.close();
        while let Ok(bytes) = self.receiver.try_recv() {
            self.gauge.took(bytes.len());
        }
    }
}

/// The writing half of a channel.
#[derive(Debug)]
pub(crate) struct Output {
    channel: ChannelWriteHalf<Msg>,
    gauge: Arc<Gauge>,
}

/// The number of SSH's only kind of extended data.
const STDERR: u32 = 1;

impl Output {
    pub(crate) fn new(channel: ChannelWriteHalf<Msg>, gauge: &Arc<Gauge>) -> Self {
        Self {
            channel,
            gauge: Arc::clone(gauge),
        }
    }

    pub(crate) fn channel(&self) -> &ChannelWriteHalf<Msg> {
        &self.channel
    }

    /// Waits while the client is behind.
    pub(crate) async fn write(&self, bytes: Bytes) -> Result<(), russh::Error> {
        let _held_back = self.held_back(bytes.len()).await;
        self.channel.data_bytes(bytes).await
    }

    pub(crate) async fn write_error(&self, bytes: Bytes) -> Result<(), russh::Error> {
        let _held_back = self.held_back(bytes.len()).await;
        self.channel.extended_data_bytes(STDERR, bytes).await
    }

    async fn held_back(&self, length: usize) -> Option<HeldBack<'_>> {
        let room = self.channel.writable_packet_size().await;
        (room < length).then(|| HeldBack::new(&self.gauge))
    }
}

/// A pipe that is read only while there is room for what comes.
#[derive(Debug)]
pub(crate) struct Throttled<S> {
    stream: S,
    gauge: Arc<Gauge>,
}

impl<S> Throttled<S> {
    pub(crate) fn new(stream: S, gauge: Arc<Gauge>) -> Self {
        Self { stream, gauge }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Throttled<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.gauge.may_read() {
            self.gauge.reader.register(cx.waker());
            // Again: it may have changed before anybody could be woken.
            if !self.gauge.may_read() {
                return Poll::Pending;
            }
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Throttled<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        time::timeout,
    };

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_pipe_is_not_read_while_enough_waits_unless_output_waits_for_it() {
        let gauge = Arc::new(Gauge::default());
        let (mut client, server) = tokio::io::duplex(64);
        let mut server = Throttled::new(server, Arc::clone(&gauge));
        client.write_all(b"abc").await.unwrap();
        let (sender, mut receiver) = input(&gauge);
        sender.send(&vec![0; ENOUGH]).unwrap();
        let short = Duration::from_secs(1);
        assert!(timeout(short, server.read_u8()).await.is_err());
        let held_back = HeldBack::new(&gauge);
        assert_eq!(server.read_u8().await.unwrap(), b'a');
        drop(held_back);
        assert!(timeout(short, server.read_u8()).await.is_err());
        let (read, took) = tokio::join!(server.read_u8(), receiver.next(async |bytes| bytes.len()));
        assert_eq!((read.unwrap(), took), (b'b', Some(ENOUGH)));
        // What nobody will read waits for nobody.
        sender.send(&vec![0; ENOUGH]).unwrap();
        drop(receiver);
        assert_eq!(server.read_u8().await.unwrap(), b'c');
        sender.send(&vec![0; ENOUGH]).unwrap();
        assert_eq!(gauge.waiting.load(SeqCst), 0);
    }

    #[test]
    fn there_is_an_end_to_what_may_wait() {
        let gauge = Arc::new(Gauge::default());
        let (sender, _input) = input(&gauge);
        assert!(sender.send(&vec![0; MOST]).is_ok());
        assert!(sender.send(&[0]).is_err());
    }
}
