//! A new network namespace, and what is set inside it.

#![expect(
    unsafe_code,
    reason = "unshare may split the descriptor table; not with our flag"
)]

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rtnetlink::packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::{AddressMessageBuilder, LinkUnspec, RouteMessageBuilder};
use rustix::thread::UnshareFlags;

use crate::Error;
use crate::error::Doing;
use crate::link::{self, INSIDE, INSIDE_NAME, VethPair};
use crate::netlink::Netlink;
use crate::threads::current_namespace;

/// Sandboxes may ping and bind port 80 without any capability; their one veth pair has no IPv6 (set
/// before it is plugged in), while `::1` stays.
const SETTINGS: [(&str, &str); 3] = [
    ("ipv4/ping_group_range", "0 2147483647"),
    ("ipv4/ip_unprivileged_port_start", "0"),
    ("ipv6/conf/default/disable_ipv6", "1"),
];

/// Usually microseconds; the kernel batches these events to one a second at worst.
const CARRIER: Duration = Duration::from_secs(3);

/// A namespace that only its descriptor keeps alive.
#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) fd: OwnedFd,
    netlink: Netlink,
}

impl Namespace {
    /// Moves the calling thread into a new namespace, which belongs to the host's user namespace:
    /// root in the sandbox has no capability over it.
    pub(crate) fn create() -> Result<Self, Error> {
        // SAFETY: NEWNET changes the thread's network namespace only; descriptors stay shared.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
            .doing(|| "making a network namespace".to_owned())?;
        let fd = current_namespace().doing(|| "opening a new network namespace".to_owned())?;
        let netlink = Netlink::open().doing(|| "opening netlink in a namespace".to_owned())?;
        for (setting, value) in SETTINGS {
            set(setting, value)?;
        }
        Ok(Self { fd, netlink })
    }

    /// Plugs in the veth pair and gives it its address, and the way out through the gateway. The
    /// neighbour is fixed: no question to answer, nothing to spoof, no entry in a small cache.
    pub(crate) fn attach(&mut self, veth: VethPair<'_>, host: BorrowedFd<'_>) -> Result<(), Error> {
        let VethPair {
            address, gateway, ..
        } = veth;
        let create = NLM_F_CREATE | NLM_F_EXCL;
        let loopback = LinkUnspec::new_with_name("lo").up().build();
        let up = LinkUnspec::new_with_index(INSIDE).up().build();
        let own = AddressMessageBuilder::<Ipv4Addr>::new()
            .index(INSIDE)
            .address(address, 32);
        let route = RouteMessageBuilder::<Ipv4Addr>::new()
            .output_interface(INSIDE)
            .gateway(gateway)
            .onlink();
        self.netlink
            .apply_all(vec![
                (veth.attach(host), create),
                (RouteNetlinkMessage::SetLink(loopback), 0),
                (RouteNetlinkMessage::SetLink(up), 0),
                (RouteNetlinkMessage::NewAddress(own.build()), create),
                (
                    link::neighbour(INSIDE, gateway, link::host_mac(address)),
                    create,
                ),
                (RouteNetlinkMessage::NewRoute(route.build()), create),
            ])
            .doing(|| format!("making the link {} and its namespace", veth.name))
    }
}

impl Namespace {
    /// Waits until the veth pair carries packets. The end that came up first learns of the other only
    /// from a work queue of the kernel, and drops what it is given until then: a sandbox would lose
    /// its first packets, and wait a second for the next try.
    pub(crate) fn wait_for_carrier(&mut self) -> Result<(), Error> {
        let give_up = Instant::now() + CARRIER;
        while !self.netlink.link(INSIDE_NAME)?.carries {
            if Instant::now() > give_up {
                tracing::warn!("a new network slot has no carrier yet");
                return Ok(());
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        Ok(())
    }
}

/// Writes a setting of the calling thread's namespace (`/proc/sys/net` follows the one who opens).
pub(crate) fn set(setting: &str, value: &str) -> Result<(), Error> {
    let path = format!("/proc/sys/net/{setting}");
    match std::fs::write(&path, value) {
        // A kernel without IPv6 has nothing to switch off.
        Err(error) if error.kind() == io::ErrorKind::NotFound && setting.starts_with("ipv6/") => {
            Ok(())
        }
        written => written.doing(|| format!("writing {value:?} to {path}")),
    }
}
