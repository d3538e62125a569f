//! Whether a name is found.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket},
    sync::mpsc,
    time::Duration,
};

/// A resolver with three silent servers takes longer; it is of no use either.
const RESOLVER_LIMIT: Duration = Duration::from_secs(15);
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
const A: u16 = 1;

/// What the system's resolver says, as programs ask it. Empty: it does not know the name.
pub fn resolves(name: &str) -> Vec<IpAddr> {
    let (send, receive) = mpsc::channel();
    let asked = (name.to_owned(), 443);
    // It cannot be interrupted: a thread that is left behind ends with the program.
    std::thread::spawn(move || {
        let found = asked.to_socket_addrs().map(Iterator::collect::<Vec<_>>);
        send.send(found.unwrap_or_default()).ok();
    });
    let found = receive.recv_timeout(RESOLVER_LIMIT).unwrap_or_default();
    found.iter().map(SocketAddr::ip).collect()
}

/// What one name server says of a name's IPv4 address.
pub fn asks(server: SocketAddr, name: &str) -> io::Result<Vec<Ipv4Addr>> {
    let from: SocketAddr = if server.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let socket = UdpSocket::bind(from)?;
    socket.set_read_timeout(Some(ANSWER_LIMIT))?;
    socket.connect(server)?;
    let question = question(name)?;
    socket.send(&question)?;
    let mut answer = [0; 1232];
    let length = socket.recv(&mut answer)?;
    addresses(&answer[..length], &question)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not an answer to this question"))
}

fn question(name: &str) -> io::Result<Vec<u8>> {
    let mut message = vec![0x5b, 0x0c, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        let length = u8::try_from(label.len())
            .ok()
            .filter(|l| (1..64).contains(l));
        message.push(length.ok_or(io::ErrorKind::InvalidInput)?);
        message.extend_from_slice(label.as_bytes());
    }
    message.push(0);
    message.extend_from_slice(&A.to_be_bytes());
    message.extend_from_slice(&1u16.to_be_bytes());
    Ok(message)
}

/// The addresses behind a question that is repeated as it was asked. A refusal has none.
fn addresses(answer: &[u8], question: &[u8]) -> Option<Vec<Ipv4Addr>> {
    let same = answer.get(..2)? == question.get(..2)?
        && answer.get(12..question.len())? == question.get(12..)?;
    if !same || answer.get(2)? & 0x80 == 0 {
        return None;
    }
    let count = u16::from_be_bytes([*answer.get(6)?, *answer.get(7)?]);
    let (mut found, mut at) = (Vec::new(), question.len());
    for _ in 0..count {
        at = after_name(answer, at)?;
        let head = answer.get(at..at + 10)?;
        let length = usize::from(u16::from_be_bytes([head[8], head[9]]));
        let data = answer.get(at + 10..at + 10 + length)?;
        if let (true, Ok(address)) = (head[..2] == A.to_be_bytes(), <[u8; 4]>::try_from(data)) {
            found.push(address.into());
        }
        at += 10 + length;
    }
    Some(found)
}

fn after_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            length if length >= 0xc0 => return Some(at + 2),
            length => at += 1 + usize::from(length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_and_another_ones_is_not() {
        let asked = question("x.sbx.test").unwrap();
        let mut answer = asked.clone();
        answer[2] = 0x81;
        answer[7] = 1;
        answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
        assert_eq!(addresses(&answer, &asked).unwrap(), [Ipv4Addr::LOCALHOST]);
        let other = question("y.sbx.test").unwrap();
        assert_eq!(addresses(&answer, &other), None);
        for cut in 0..answer.len() {
            addresses(&answer[..cut], &asked);
        }
    }

    #[test]
    fn a_name_server_that_is_not_there_is_an_error() {
        let closed = UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        assert!(asks(closed, "x.sbx.test").is_err());
    }

    #[test]
    fn this_machine_knows_localhost_and_not_what_cannot_be() {
        assert!(resolves("localhost").iter().any(IpAddr::is_loopback));
        assert!(resolves("no..name").is_empty());
    }
}
