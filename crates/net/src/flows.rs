//! The kernel's conntrack table: who opened how many connections, and deleting them.
//!
//! The table belongs to the whole machine, and an entry outlives the sandbox that made it, an
//! established one for days. A new sandbox with the same address would start with the old one's
//! entries counted to it.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rtnetlink::packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
    sockopt,
};

use self::attributes::{nested, of_kind, plain};
use crate::messages::{messages, refusal};

pub(crate) mod attributes;
mod schedule;
mod share;

pub(crate) use self::schedule::ScanSchedule;
use self::share::{Counts, highest_share};

/// The kernel answers at once; this only keeps a bug from waiting for ever.
const ANSWER: Duration = Duration::from_secs(5);
const BUFFER: usize = 256 * 1024;
/// Answers that wait unread are dropped beyond the size of a socket's buffer.
const AT_ONCE: u32 = 64;

/// `NFNL_SUBSYS_CTNETLINK` and its messages.
const SUBSYSTEM: u16 = 1 << 8;
const GET: u16 = SUBSYSTEM | 1;
const DELETE: u16 = SUBSYSTEM | 2;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const HEADER: usize = 16;
/// `nfgenmsg`: IPv4, version 0.
const FAMILY: [u8; 4] = [2, 0, 0, 0];

// Attributes.
const ORIGINAL: u16 = 1;
const IDENTIFIER: u16 = 12;
const ZONE: u16 = 18;
const FILTER: u16 = 25;
const TUPLE_ADDRESSES: u16 = 1;
const SOURCE: u16 = 1;
const FILTER_ORIGINAL: u16 = 1;
const FILTER_REPLY: u16 = 2;
/// `CTA_FILTER_F_CTA_IP_SRC`.
const BY_SOURCE: u32 = 1;

/// How many entries the table has, and how many it may have. `None`: the kernel has none.
pub(crate) async fn used_of_table() -> Option<(usize, usize)> {
    let read = async |name| {
        let path = format!("/proc/sys/net/netfilter/nf_conntrack_{name}");
        let text = tokio::fs::read_to_string(path).await.ok()?;
        text.trim().parse().ok()
    };
    Some((read("count").await?, read("max").await?))
}

#[derive(Debug)]
pub(crate) struct Flows {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Flow {
    /// Who sent the first packet.
    pub(crate) source: Ipv4Addr,
    /// The attributes by which the kernel finds it again.
    name: Vec<u8>,
}

/// What a scan of the table has found.
#[derive(Debug)]
pub(crate) enum ScanResult {
    /// Sandboxes have so many, which they may.
    Within(usize),
    Removed(Removed),
}

/// The entries that were removed.
#[derive(Debug)]
pub(crate) struct Removed {
    /// How many each may keep.
    pub(crate) share: usize,
    pub(crate) deleted: usize,
    /// Who had more.
    pub(crate) sandboxes: usize,
}

impl Flows {
    /// Of the calling thread's network namespace.
    pub(crate) fn open() -> io::Result<Self> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(netlink::NETFILTER),
        )?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWER))?;
        rustix::net::bind(&socket, &netlink::SocketAddrNetlink::new(0, 0))?;
        Ok(Self {
            socket,
            sequence: 0,
            buffer: vec![0; BUFFER],
        })
    }

    /// Those that an address for which `wanted` holds began. The kernel looks at every place of its
    /// table for it, which takes milliseconds.
    pub(crate) fn list(&mut self, wanted: impl Fn(Ipv4Addr) -> bool) -> io::Result<Vec<Flow>> {
        self.dump(&[], wanted)
    }

    /// Those of one address: the kernel leaves out the others.
    pub(crate) fn list_of(&mut self, address: Ipv4Addr) -> io::Result<Vec<Flow>> {
        let source = plain(SOURCE, &address.octets());
        let mut filter = nested(ORIGINAL, &nested(TUPLE_ADDRESSES, &source));
        let mut flags = plain(FILTER_ORIGINAL, &BY_SOURCE.to_ne_bytes());
        flags.extend(plain(FILTER_REPLY, &0_u32.to_ne_bytes()));
        filter.extend(nested(FILTER, &flags));
        self.dump(&filter, |source| source == address)
    }

    fn dump(&mut self, filter: &[u8], wanted: impl Fn(Ipv4Addr) -> bool) -> io::Result<Vec<Flow>> {
        let mut request = Vec::new();
        let sequence = self.push(&mut request, GET, NLM_F_DUMP, filter);
        self.send(&request)?;
        let mut flows = Vec::new();
        loop {
            let mut end = None;
            self.receive(|kind, answered, body| {
                if answered != sequence {
                    return;
                }
                match kind {
                    DONE => end = Some(Ok(())),
                    ERROR => end = Some(refusal(body).map_or(Ok(()), Err)),
                    _ => flows.extend(flow(body).filter(|flow| wanted(flow.source))),
                }
            })?;
            if let Some(end) = end {
                return end.map(|()| flows);
            }
        }
    }

    /// Takes them away; those that are gone already are no error.
    pub(crate) fn delete<'a>(
        &mut self,
        flows: impl IntoIterator<Item = &'a Flow>,
    ) -> io::Result<usize> {
        let mut flows = flows.into_iter();
        let mut deleted = 0;
        loop {
            let mut request = Vec::new();
            let first = self.sequence.wrapping_add(1);
            let mut open = 0;
            for flow in flows.by_ref().take(AT_ONCE as usize) {
                self.push(&mut request, DELETE, NLM_F_ACK, &flow.name);
                open += 1;
            }
            if open == 0 {
                return Ok(deleted);
            }
            self.send(&request)?;
            let mut refused = None;
            while open > 0 {
                self.receive(|kind, answered, body| {
                    if kind != ERROR || answered.wrapping_sub(first) >= AT_ONCE {
                        return;
                    }
                    open -= 1;
                    match refusal(body) {
                        None => deleted += 1,
                        // Gone by itself, or in the hands of somebody's flowtable.
                        Some(error)
                            if matches!(
                                Errno::from_io_error(&error),
                                Some(Errno::NOENT | Errno::BUSY)
                            ) => {}
                        Some(error) => {
                            refused.get_or_insert(error);
                        }
                    }
                })?;
            }
            if let Some(error) = refused {
                return Err(error);
            }
        }
    }

    /// Lets those for which `ours` holds keep `budget` connections together.
    pub(crate) fn cut(
        &mut self,
        ours: impl Fn(Ipv4Addr) -> bool,
        budget: usize,
    ) -> io::Result<ScanResult> {
        let flows = self.list(ours)?;
        let counts = counted(&flows);
        let Some(share) = highest_share(&counts, budget) else {
            return Ok(ScanResult::Within(flows.len()));
        };
        let mut kept = Counts::new();
        let beyond = flows.iter().filter(|flow| {
            let kept = kept.entry(flow.source).or_default();
            *kept += 1;
            *kept > share
        });
        let deleted = self.delete(beyond)?;
        Ok(ScanResult::Removed(Removed {
            share,
            deleted,
            sandboxes: counts.values().filter(|count| **count > share).count(),
        }))
    }

    fn push(&mut self, bytes: &mut Vec<u8>, kind: u16, flags: u16, attributes: &[u8]) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        let length = HEADER + FAMILY.len() + attributes.len();
        bytes.extend(u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((NLM_F_REQUEST | flags).to_ne_bytes());
        bytes.extend(self.sequence.to_ne_bytes());
        bytes.extend(0_u32.to_ne_bytes());
        bytes.extend(FAMILY);
        bytes.extend(attributes);
        self.sequence
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let sent = send(&self.socket, bytes, SendFlags::empty())?;
        if sent == bytes.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    /// Reads one datagram; shows kind, sequence number and body of each message in it.
    fn receive(&mut self, mut each: impl FnMut(u16, u32, &[u8])) -> io::Result<()> {
        let (_, length) = recv(&self.socket, self.buffer.as_mut_slice(), RecvFlags::TRUNC)?;
        let datagram = self
            .buffer
            .get(..length)
            .ok_or(io::ErrorKind::InvalidData)?;
        for (kind, sequence, body) in messages(datagram) {
            each(kind, sequence, body);
        }
        Ok(())
    }
}

fn flow(body: &[u8]) -> Option<Flow> {
    let attributes = body.get(FAMILY.len()..)?;
    let (tuple, raw) = of_kind(attributes, ORIGINAL)?;
    let (addresses, _) = of_kind(tuple, TUPLE_ADDRESSES)?;
    let (source, _) = of_kind(addresses, SOURCE)?;
    let mut name = raw.to_vec();
    for kind in [IDENTIFIER, ZONE] {
        if let Some((_, raw)) = of_kind(attributes, kind) {
            name.extend(raw);
        }
    }
    Some(Flow {
        source: Ipv4Addr::from(<[u8; 4]>::try_from(source).ok()?),
        name,
    })
}

/// By who began them.
fn counted(flows: &[Flow]) -> Counts {
    let mut counts = BTreeMap::new();
    for flow in flows {
        *counts.entry(flow.source).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
