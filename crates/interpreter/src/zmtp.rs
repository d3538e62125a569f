//! The client half of ZMTP 3.0, the wire protocol of ZeroMQ, as far as Jupyter needs it: a `DEALER`
//! or `SUB` socket that connects to one kernel, without security mechanism.
//!
//! Our own, because a kernel is one peer on one stream: what a general ZeroMQ library adds
//! (reconnecting, queues of its own, fair dealing) is what must not happen here. A kernel that is
//! gone must be seen as gone, and a message that nobody has room for must stay in the kernel.

mod frame;
mod greeting;

use std::{io, path::PathBuf};

use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    net::{TcpStream, UnixStream},
};

pub(crate) use self::frame::Message;

/// Where a kernel listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Ipc(PathBuf),
    Tcp(u16),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SocketType {
    Dealer,
    Subscriber,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the kernel's socket failed")]
    Io(#[from] io::Error),
    #[error("the kernel does not speak ZMTP 3: {0}")]
    Protocol(&'static str),
}

type Source = BufReader<Box<dyn AsyncRead + Unpin>>;
type Sink = Box<dyn AsyncWrite + Unpin>;

pub(crate) struct Receiver(Source);
pub(crate) struct Sender(Sink);

/// Connects and shakes hands. A subscriber subscribes to everything.
pub(crate) async fn connect(
    endpoint: &Endpoint,
    kind: SocketType,
) -> Result<(Sender, Receiver), Error> {
    let (source, mut sink): (Box<dyn AsyncRead + Unpin>, Sink) = match endpoint {
        Endpoint::Ipc(path) => {
            let (read, write) = UnixStream::connect(path).await?.into_split();
            (Box::new(read), Box::new(write))
        }
        Endpoint::Tcp(port) => {
            let stream = TcpStream::connect(("127.0.0.1", *port)).await?;
            stream.set_nodelay(true)?;
            let (read, write) = stream.into_split();
            (Box::new(read), Box::new(write))
        }
    };
    let mut source = BufReader::new(source);
    greeting::exchange(&mut source, &mut sink, kind).await?;
    let mut sender = Sender(sink);
    if kind == SocketType::Subscriber {
        sender.send(&[b"\x01".to_vec()]).await?;
    }
    Ok((sender, Receiver(source)))
}

impl Sender {
    pub(crate) async fn send(&mut self, parts: &[Vec<u8>]) -> Result<(), Error> {
        let wire = frame::encode(parts);
        self.0.write_all(&wire).await?;
        self.0.flush().await?;
        Ok(())
    }
}

impl Receiver {
    /// The next message. Not to be cancelled halfway: what was read of a message would be lost.
    pub(crate) async fn receive(&mut self) -> Result<Message, Error> {
        frame::read_message(&mut self.0).await
    }
}
