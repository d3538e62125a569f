//! A blocking rtnetlink socket: the kernel answers at once, so a thread that is allowed to enter
//! namespaces needs no event loop.
//!
//! A socket belongs for life to the namespace in which it was made, wherever its thread goes later.

use std::borrow::Cow;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rtnetlink::packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkBuffer, NetlinkMessage,
    NetlinkPayload,
};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, socket_with, sockopt,
};

/// The kernel answers in microseconds; this only keeps a bug from waiting for ever.
const ANSWER: Duration = Duration::from_secs(5);
const BUFFER: usize = 64 * 1024;
/// How often a list is read again that changed meanwhile.
const LISTINGS: usize = 100;
/// Protocol number 0, which rustix writes like this.
const ROUTING: Option<rustix::net::Protocol> = None;
const ERROR: u16 = 2;
const DONE: u16 = 3;

#[derive(Debug)]
pub(crate) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

/// One change, and the flags that say what may exist already.
pub(crate) type Change = (RouteNetlinkMessage, u16);

impl Netlink {
    /// A socket in the calling thread's network namespace.
    pub(crate) fn open() -> io::Result<Self> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            ROUTING,
        )?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWER))?;
        rustix::net::bind(&socket, &netlink::SocketAddrNetlink::new(0, 0))?;
        Ok(Self {
            socket,
            sequence: 0,
            buffer: vec![0; BUFFER],
        })
    }

    /// Makes one change and waits for the kernel's word on it.
    pub(crate) fn apply(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.apply_all(vec![(message, flags)])
    }

    /// Sends all changes in one system call; the first refusal is the error.
    pub(crate) fn apply_all(&mut self, changes: Vec<Change>) -> io::Result<()> {
        let mut bytes = Vec::new();
        let mut open = changes.len();
        for (message, flags) in changes {
            self.push(&mut bytes, message, flags | NLM_F_ACK);
        }
        let last = self.sequence;
        let first = last
            .wrapping_sub(u32::try_from(open).unwrap_or(u32::MAX))
            .wrapping_add(1);
        self.send(&bytes)?;
        let mut refused = None;
        while open > 0 {
            self.receive(|header, bytes| {
                let ours = header.sequence_number().wrapping_sub(first) <= last.wrapping_sub(first);
                if ours && header.message_type() == ERROR {
                    open = open.saturating_sub(1);
                    if let Some(error) = refusal(bytes) {
                        refused.get_or_insert(error);
                    }
                }
            })?;
        }
        refused.map_or(Ok(()), Err)
    }

    /// Asks for one object.
    pub(crate) fn get(&mut self, message: RouteNetlinkMessage) -> io::Result<RouteNetlinkMessage> {
        let (mut answers, _) = self.ask(message, 0)?;
        answers.pop().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Asks for all objects of a kind. What the parser does not know is left out.
    pub(crate) fn list(
        &mut self,
        message: &RouteNetlinkMessage,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        for _ in 0..LISTINGS {
            let (answers, whole) = self.ask(message.clone(), NLM_F_DUMP)?;
            if whole {
                return Ok(answers);
            }
        }
        Err(io::Error::other(
            "the list changed every time while it was read",
        ))
    }

    /// The answers, and whether nothing changed under the kernel's hands while it listed them: if
    /// something did, objects that were there all the time may be missing.
    fn ask(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<(Vec<RouteNetlinkMessage>, bool)> {
        let mut bytes = Vec::new();
        self.push(&mut bytes, message, flags);
        self.send(&bytes)?;
        let sequence = self.sequence;
        let (mut answers, mut whole, mut done, mut refused) = (Vec::new(), true, false, None);
        while !done {
            self.receive(|header, bytes| {
                if header.sequence_number() != sequence {
                    return;
                }
                whole &= header.flags() & NLM_F_DUMP_INTR == 0;
                match header.message_type() {
                    DONE => done = true,
                    ERROR => {
                        done = true;
                        refused = refusal(bytes);
                    }
                    _ => {
                        done |= flags & NLM_F_DUMP == 0;
                        let short = shortened(bytes);
                        let parsed = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&short);
                        if let Ok(NetlinkPayload::InnerMessage(answer)) =
                            parsed.map(|message| message.payload)
                        {
                            answers.push(answer);
                        }
                    }
                }
            })?;
        }
        refused.map_or(Ok((answers, whole)), Err)
    }

    fn push(&mut self, bytes: &mut Vec<u8>, message: RouteNetlinkMessage, flags: u16) {
        self.sequence = self.sequence.wrapping_add(1);
        let mut message = NetlinkMessage::from(message);
        message.header.flags = NLM_F_REQUEST | flags;
        message.header.sequence_number = self.sequence;
        message.finalize();
        let start = bytes.len();
        // The next message must start on a multiple of four bytes.
        bytes.resize(start + message.buffer_len().next_multiple_of(4), 0);
        message.serialize(&mut bytes[start..start + message.buffer_len()]);
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let sent = rustix::net::send(&self.socket, bytes, SendFlags::empty())?;
        if sent == bytes.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    /// Reads one datagram and shows each message in it.
    fn receive(&mut self, mut each: impl FnMut(&NetlinkBuffer<&[u8]>, &[u8])) -> io::Result<()> {
        let (_, length) =
            rustix::net::recv(&self.socket, self.buffer.as_mut_slice(), RecvFlags::TRUNC)?;
        let mut rest = self
            .buffer
            .get(..length)
            .ok_or(io::ErrorKind::InvalidData)?;
        while let Ok(header) = NetlinkBuffer::new_checked(rest) {
            let length = header.length() as usize;
            each(&header, &rest[..length]);
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(())
    }
}

/// A link without the attributes that nobody here reads: reading the dozens that the kernel tells of
/// each link takes longer than making one. Other messages as they are.
fn shortened(message: &[u8]) -> Cow<'_, [u8]> {
    const LINK: u16 = 16;
    /// Of netlink and of a link.
    const HEADERS: usize = 16 + 16;
    /// `IFLA_ADDRESS`, `IFLA_IFNAME`, `IFLA_MTU`, `IFLA_OPERSTATE`.
    const READ: [u16; 4] = [1, 3, 4, 16];
    let number = |bytes: &[u8], at: usize| -> Option<u16> {
        let pair = bytes.get(at..at + 2)?.try_into().ok()?;
        Some(u16::from_ne_bytes(pair))
    };
    if number(message, 4) != Some(LINK) || message.len() < HEADERS {
        return Cow::Borrowed(message);
    }
    let (headers, mut rest) = message.split_at(HEADERS);
    let mut short = headers.to_vec();
    while let (Some(length), Some(kind)) = (number(rest, 0), number(rest, 2)) {
        let (length, padded) = (
            usize::from(length),
            usize::from(length).next_multiple_of(4).max(4),
        );
        if READ.contains(&kind)
            && let Some(attribute) = rest.get(..length)
        {
            short.extend(attribute);
            short.resize(short.len().next_multiple_of(4), 0);
        }
        rest = rest.get(padded..).unwrap_or_default();
    }
    let length = u32::try_from(short.len()).unwrap_or(u32::MAX);
    short[..4].copy_from_slice(&length.to_ne_bytes());
    Cow::Owned(short)
}

/// The negative errno after the header; zero is an acknowledgement.
fn refusal(message: &[u8]) -> Option<io::Error> {
    let code = message
        .get(16..20)?
        .try_into()
        .map(i32::from_ne_bytes)
        .ok()?;
    (code != 0).then(|| io::Error::from_raw_os_error(code.wrapping_neg()))
}

#[cfg(test)]
mod tests {
    use rtnetlink::packet_route::link::{LinkAttribute, LinkMessage};

    use super::*;

    fn bytes(attributes: Vec<LinkAttribute>) -> Vec<u8> {
        let mut link = LinkMessage::default();
        link.attributes = attributes;
        let mut message = NetlinkMessage::from(RouteNetlinkMessage::NewLink(link));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes
    }

    #[test]
    fn of_a_link_only_what_is_read_is_parsed() {
        let name = LinkAttribute::IfName("sb0a1f3".to_owned());
        let mac = LinkAttribute::Address(vec![2, 0, 10, 213, 0, 7]);
        let (queue, mtu) = (LinkAttribute::TxQueueLen(1000), LinkAttribute::Mtu(1420));
        let whole = bytes(vec![name.clone(), queue, mac.clone(), mtu.clone()]);
        assert_eq!(*shortened(&whole), *bytes(vec![name, mac, mtu]));
    }

    #[test]
    fn cut_and_broken_messages_end() {
        let whole = bytes(vec![LinkAttribute::IfName("sb0a1f3".to_owned())]);
        for length in 0..whole.len() {
            shortened(&whole[..length]);
        }
        let mut broken = whole.clone();
        for at in 32..whole.len() {
            for byte in [0, 1, 255] {
                broken[at] = byte;
                shortened(&broken);
            }
            broken[at] = whole[at];
        }
    }
}
