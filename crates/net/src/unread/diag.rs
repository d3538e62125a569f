//! What sockets of one kind hold, asked of `sock_diag`. A connection that waits to be accepted is
//! among them.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rtnetlink::packet_core::{NLM_F_DUMP, NLM_F_REQUEST};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
    sockopt,
};

use super::Sum;
use crate::flows::attributes::of_kind;
use crate::messages::{messages, refusal};

/// The kernel answers at once; this only keeps a bug from waiting for ever.
const ANSWER: Duration = Duration::from_secs(2);
const BUFFER: usize = 64 * 1024;

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const HEADER: u32 = 16;
/// `INET_DIAG_SKMEMINFO`, an attribute of an answer, and the bit that asks for it.
const MEMORY: u16 = 7;
const ASK_MEMORY: u8 = 1 << (MEMORY - 1);
/// All but those that hold nothing: `SYN_RECV` (3), `TIME_WAIT` (6), `LISTEN` (10).
const STATES: u32 = 0xfff & !(1 << 3) & !(1 << 6) & !(1 << 10);
/// `inet_diag_req_v2` after its first eight bytes: which socket; zero is any.
const ANY: [u8; 48] = [0; 48];
/// `inet_diag_msg`, before the attributes. It ends with the owner, as this process calls it, and the
/// inode, a `u32` each.
const SOCKET: usize = 72;
const OWNER: usize = 64;
const INODE: usize = 68;
/// In the attribute, a `u32` each: received, reserved for more, to be sent, and not yet looked at.
const HELD: [usize; 4] = [0, 4, 5, 7];

/// The address family and the protocol, as numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Which {
    pub(super) family: u8,
    pub(super) protocol: u8,
}

#[derive(Debug)]
pub(super) struct Diag {
    socket: OwnedFd,
    which: Which,
}

impl Diag {
    /// Of the calling thread's network namespace.
    pub(super) fn open(which: Which) -> io::Result<Self> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(netlink::SOCK_DIAG),
        )?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWER))?;
        Ok(Self { socket, which })
    }

    /// Of all but the server's, or of those that were told in time.
    pub(super) fn sum(&mut self, server: u32, until: Instant) -> io::Result<Sum> {
        send(&self.socket, &request(self.which), SendFlags::empty())?;
        let (mut bytes, mut buffer) = (0_u64, vec![0; BUFFER]);
        while Instant::now() < until {
            let (_, length) = recv(&self.socket, buffer.as_mut_slice(), RecvFlags::TRUNC)?;
            let datagram = buffer.get(..length).ok_or(io::ErrorKind::InvalidData)?;
            for (kind, _, body) in messages(datagram) {
                match kind {
                    // With an error when the kernel cannot tell of such sockets.
                    DONE | ERROR => {
                        let all = Sum {
                            bytes,
                            complete: true,
                        };
                        return refusal(body).map_or(Ok(all), Err);
                    }
                    _ => bytes = bytes.saturating_add(held_by(body, server)),
                }
            }
        }
        Ok(Sum {
            bytes,
            complete: false,
        })
    }
}

fn request(which: Which) -> Vec<u8> {
    let mut body = vec![which.family, which.protocol, ASK_MEMORY, 0];
    body.extend(STATES.to_ne_bytes());
    body.extend(ANY);
    let length = HEADER + u32::try_from(body.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::new();
    bytes.extend(length.to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    // Sequence and sender: one question for each socket.
    bytes.extend([0; 8]);
    bytes.extend(body);
    bytes
}

/// By one socket; nothing by one of the server.
pub(super) fn held_by(answer: &[u8], server: u32) -> u64 {
    let number = |at: usize| {
        answer
            .get(at..)?
            .first_chunk()
            .copied()
            .map(u32::from_ne_bytes)
    };
    // No file of anybody, so no inode: not accepted yet, or closed by its program. The owner of
    // such a one is 0 before Linux 6.17, whoever it was.
    if number(OWNER) == Some(server) && number(INODE) != Some(0) {
        return 0;
    }
    let told = answer.get(SOCKET..).and_then(|all| of_kind(all, MEMORY));
    let Some((memory, _)) = told else { return 0 };
    let (words, _) = memory.as_chunks();
    let held = HELD.iter().filter_map(|word| words.get(*word));
    held.map(|word| u64::from(u32::from_ne_bytes(*word))).sum()
}
