//! A lock between servers: one at a time claims addresses.
//!
//! Looking whether a range is free and taking it are two steps for the kernel: servers that start at
//! the same moment would both find it free, and both keep it. The lock is a bound UDP
//! address: the kernel gives it to one socket per network namespace, which is exactly the scope that
//! is shared; it is released when its holder is killed; and as the port is privileged, other users of
//! the machine cannot block it, as they could with a lock on a file that they may read.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

use crate::Error;
use crate::error::Doing;

/// Of loopback, which every namespace has to itself; nothing is ever sent there.
const LOCK_ADDRESS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(127, 213, 213, 213), 213);
/// Others hold it for milliseconds. Shorter than a change of the network may take.
const TIMEOUT: Duration = Duration::from_secs(8);
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

/// Released when dropped, or with its process.
#[derive(Debug)]
pub(crate) struct ClaimLock {
    _socket: OwnedFd,
}

impl ClaimLock {
    /// Blocks: for threads that may.
    pub(crate) fn acquire() -> Result<Self, Error> {
        let doing = || "waiting for other servers that take addresses".to_owned();
        let (family, kind) = (AddressFamily::INET, SocketType::DGRAM);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).doing(doing)?;
        // Also where loopback is down.
        sockopt::set_ip_freebind(&socket, true).doing(doing)?;
        let until = Instant::now() + TIMEOUT;
        loop {
            match bind(&socket, &LOCK_ADDRESS) {
                Ok(()) => return Ok(Self { _socket: socket }),
                Err(Errno::ADDRINUSE) if Instant::now() < until => thread::sleep(BETWEEN_TRIES),
                Err(Errno::ADDRINUSE) => {
                    return Err(Error::TimedOut {
                        doing: "waiting for another server that takes addresses and holds UDP \
                                port 213 of 127.213.213.213 (see it with `ss -ulpn`)",
                        seconds: TIMEOUT.as_secs(),
                    });
                }
                Err(error) => return Err(error).doing(doing),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_waits_for_the_first() {
        let first = ClaimLock::acquire().unwrap();
        let (waiting, starts) = std::sync::mpsc::channel();
        let (done, ends) = std::sync::mpsc::channel();
        let second = thread::spawn(move || {
            waiting.send(()).unwrap();
            let lock = ClaimLock::acquire();
            done.send(()).unwrap();
            lock
        });
        starts.recv().unwrap();
        assert!(ends.recv_timeout(BETWEEN_TRIES * 3).is_err());
        drop(first);
        assert!(second.join().unwrap().is_ok());
    }
}
