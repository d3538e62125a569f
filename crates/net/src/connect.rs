//! The one way into a sandbox: a socket that is made inside its network namespace.
//!
//! Only the making needs a thread in there; a socket keeps its namespace, so connecting, reading
//! and writing happen on the runtime as for any other. Works for services bound to 127.0.0.1.

use std::io;
use std::net::{SocketAddr, TcpStream as StdStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use soulbox_sys::send_unpaced;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::threads::{Threads, enter};

/// Making a socket takes microseconds: two threads serve any number of sandboxes.
const THREADS: usize = 2;

/// Connects to an address as a process in that namespace would.
///
/// The time limit covers all of it. Dropping the future closes the socket.
pub async fn connect_in(
    netns: BorrowedFd<'_>,
    address: SocketAddr,
    limit: Duration,
) -> io::Result<TcpStream> {
    // The caller's descriptor may be closed before the thread gets to the job.
    let namespace = netns.try_clone_to_owned()?;
    timeout(limit, async {
        let socket = threads()?
            .run(move || socket_in(&namespace, address))
            .await??;
        let stream = TcpSocket::from_std_stream(StdStream::from(socket))
            .connect(address)
            .await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    })
    .await
    .unwrap_or_else(|_| {
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("no answer from {address}"),
        ))
    })
}

fn socket_in(namespace: &OwnedFd, address: SocketAddr) -> io::Result<OwnedFd> {
    enter(namespace.as_fd())?;
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    send_unpaced(&socket);
    Ok(socket)
}

/// Those that open something inside a namespace and leave it again.
pub(crate) fn threads() -> io::Result<&'static Threads> {
    static DIALERS: OnceLock<Threads> = OnceLock::new();
    if let Some(threads) = DIALERS.get() {
        return Ok(threads);
    }
    let new = Threads::new("sbx-dial", THREADS)?;
    Ok(DIALERS.get_or_init(|| new))
}
