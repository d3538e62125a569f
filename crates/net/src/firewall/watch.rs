//! Notices when somebody removes our table: `nft flush ruleset` is what a distribution's firewall
//! service does on every restart, and running sandboxes must not be left without rules.

#![expect(
    unsafe_code,
    reason = "the runtime must be promised that a descriptor stays open"
)]

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, netlink, recv, socket_with};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Bit of the multicast group that hears of all nftables changes (`NFNLGRP_NFTABLES`, number 7).
const CHANGES: u32 = 1 << 6;
/// `NFNL_SUBSYS_NFTABLES`, `NFT_MSG_DELTABLE`: subsystem and kind of "a table was deleted".
const TABLE_DELETED: [u8; 2] = [2, 10];
const HEADER: usize = 16;

#[derive(Debug)]
pub(crate) struct Watch {
    socket: AsyncFd<OwnedFd>,
}

impl Watch {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let protocol = Some(netlink::NETFILTER);
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        rustix::net::bind(&socket, &netlink::SocketAddrNetlink::new(0, CHANGES))?;
        // SAFETY: an `OwnedFd` is open, and stays the same descriptor for as long as it is owned.
        let socket = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?;
        Ok(Self { socket })
    }

    /// Returns when some table was deleted, or when there was too much news to read it all.
    pub(crate) async fn a_deleted_table(&self) -> io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let mut ready = self.socket.readable().await?;
            let read = ready.try_io(|socket| {
                Ok(recv(socket.get_ref(), buffer.as_mut_slice(), RecvFlags::empty())?.0)
            });
            match read {
                Ok(Ok(length)) if reports_deletion(&buffer[..length]) => return Ok(()),
                Ok(Err(error)) if is_overrun(&error) => return Ok(()),
                Ok(Err(error)) => return Err(error),
                Ok(Ok(_)) | Err(_) => {}
            }
        }
    }
}

fn is_overrun(error: &io::Error) -> bool {
    rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::NOBUFS)
}

/// Looks at the kind of each message: its length is in the first four bytes, its kind in the next.
fn reports_deletion(mut messages: &[u8]) -> bool {
    while let Some(&[a, b, c, d, kind, subsystem]) = messages.first_chunk() {
        if [kind, subsystem] == TABLE_DELETED {
            return true;
        }
        let length = usize::try_from(u32::from_ne_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        let next = length
            .max(HEADER)
            .checked_next_multiple_of(4)
            .unwrap_or(usize::MAX);
        messages = messages.get(next..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: [u8; 2]) -> Vec<u8> {
        let mut message = vec![0; 20];
        message[..4].copy_from_slice(&18u32.to_ne_bytes());
        message[4..6].copy_from_slice(&kind);
        message
    }

    #[test]
    fn a_deletion_is_found_among_other_news() {
        let created = message([0, 10]);
        assert!(!reports_deletion(&created));
        assert!(reports_deletion(
            &[created, message(TABLE_DELETED)].concat()
        ));
    }

    #[test]
    fn broken_news_ends() {
        assert!(!reports_deletion(&[]));
        assert!(!reports_deletion(&[0; 64]));
        assert!(!reports_deletion(&[255; 64]));
    }
}
