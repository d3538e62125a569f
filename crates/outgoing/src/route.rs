//! Whether packets to an address leave this machine. What listens on its public address is as much
//! the operator's own as what listens on loopback.
//!
//! The kernel is asked where it would send them: that counts every address of every interface, also
//! ones added a moment ago, and what is delivered here without being an interface's.

use std::{io, net::IpAddr, time::Duration};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send,
        socket_with, sockopt,
    },
};

/// The kernel answers before the question returns; this only keeps a bug from waiting for ever.
const ANSWER: Duration = Duration::from_secs(1);

/// `RTM_GETROUTE` and its answers.
const GET_ROUTE: u16 = 26;
const ROUTE: u16 = 24;
const ERROR: u16 = 2;
const REQUEST: u16 = 1;
const HEADER: usize = 16;
/// Of `rtmsg`.
const KIND: usize = HEADER + 7;
const LENGTH: usize = 12;
const DESTINATION: u16 = 1;
/// `RTN_UNICAST`: to somebody else, on a wire or through a router.
const TO_SOMEBODY_ELSE: u8 = 1;

/// One that cannot be reached at all is elsewhere: connecting says why.
pub fn is_elsewhere(address: IpAddr) -> io::Result<bool> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWER))?;
    rustix::net::bind(&socket, &netlink::SocketAddrNetlink::new(0, 0))?;
    send(&socket, &question(address)?, SendFlags::empty())?;
    let mut answer = [0; 4096];
    let (_, length) = recv(&socket, answer.as_mut_slice(), RecvFlags::TRUNC)?;
    let answer = answer.get(..length).ok_or(io::ErrorKind::InvalidData)?;
    kind(answer).map(|kind| kind == TO_SOMEBODY_ELSE)
}

fn question(address: IpAddr) -> io::Result<Vec<u8>> {
    let (family, bytes) = match address {
        IpAddr::V4(address) => (2, address.octets().to_vec()),
        IpAddr::V6(address) => (10, address.octets().to_vec()),
    };
    let short = |length: usize| u16::try_from(length).map_err(io::Error::other);
    let attribute = short(4 + bytes.len())?;
    let collect_limited = u32::from(short(HEADER + LENGTH)? + attribute);
    let bits = u8::try_from(bytes.len() * 8).map_err(io::Error::other)?;
    let mut question = Vec::new();
    question.extend(collect_limited.to_ne_bytes());
    question.extend(GET_ROUTE.to_ne_bytes());
    question.extend(REQUEST.to_ne_bytes());
    // Sequence number and sender: this is the only question on this socket.
    question.extend([0; 8]);
    question.extend([family, bits]);
    question.extend([0; LENGTH - 2]);
    question.extend(attribute.to_ne_bytes());
    question.extend(DESTINATION.to_ne_bytes());
    question.extend(bytes);
    Ok(question)
}

fn kind(answer: &[u8]) -> io::Result<u8> {
    let strange = || io::Error::from(io::ErrorKind::InvalidData);
    let message = answer.get(4..6).and_then(|kind| kind.first_chunk());
    match u16::from_ne_bytes(*message.ok_or_else(strange)?) {
        ROUTE => answer.get(KIND).copied().ok_or_else(strange),
        ERROR => {
            let code = answer.get(HEADER..).and_then(|body| body.first_chunk());
            let code = i32::from_ne_bytes(*code.ok_or_else(strange)?);
            match Errno::from_raw_os_error(code.wrapping_neg()) {
                Errno::NETUNREACH | Errno::HOSTUNREACH => Ok(TO_SOMEBODY_ELSE),
                error => Err(error.into()),
            }
        }
        _ => Err(strange()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn elsewhere(address: &str) -> bool {
        is_elsewhere(address.parse().unwrap()).unwrap()
    }

    fn ip(arguments: &str) {
        let done = Command::new("ip").args(arguments.split(' ')).status();
        assert!(done.unwrap().success(), "ip {arguments}");
    }

    #[test]
    fn loopback_is_here() {
        assert!(!elsewhere("127.0.0.1") && !elsewhere("127.8.8.8"));
    }

    #[test]
    fn every_address_of_every_interface_is_here() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: a network namespace needs root");
            return;
        }
        let test = std::thread::spawn(|| {
            soulbox_sys::enter_new_network().unwrap();
            assert!(elsewhere("203.0.113.7"), "there is no way anywhere");
            ip("link set lo up");
            ip("link add here type bridge");
            ip("link set here up");
            ip("address add 203.0.113.7/24 dev here");
            ip("address add 203.0.113.8/24 dev here");
            ip("address add 2606:4700::7/64 dev here nodad");
            ip("route add local 198.51.100.0/24 dev lo");
            for own in ["203.0.113.7", "203.0.113.8", "198.51.100.9"] {
                assert!(!elsewhere(own), "{own}");
            }
            // The kernel itself takes an IPv6 address for its own only after a turn of a work queue.
            let give_up = std::time::Instant::now() + std::time::Duration::from_secs(10);
            while elsewhere("2606:4700::7") {
                assert!(std::time::Instant::now() < give_up, "2606:4700::7");
                std::thread::yield_now();
            }
            assert!(elsewhere("203.0.113.9") && elsewhere("2606:4700::8"));
            assert!(!elsewhere("203.0.113.255"), "a broadcast reaches us too");
            ip("address delete 203.0.113.8/24 dev here");
            assert!(elsewhere("203.0.113.8"));
        });
        test.join().unwrap();
    }
}
