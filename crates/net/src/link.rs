//! Links, addresses and routes on the host: the gateway's holder and the host's ends of veth pairs.

use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd};

use rtnetlink::packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::link::{InfoData, InfoVeth, LinkAttribute, LinkMessage, State};
use rtnetlink::packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteScope};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::{AddressMessageBuilder, LinkBridge, LinkUnspec, LinkVeth, RouteMessageBuilder};
use rustix::io::Errno;

use crate::error::Doing;
use crate::netlink::Netlink;
use crate::{Error, Ipv4Net, namespace};

/// The link's number inside every namespace. Some kernels put their own tunnel devices into each
/// new namespace, so a small number could be taken.
pub(crate) const INSIDE: u32 = 100;
const USUAL_MTU: u32 = 1500;
/// What every IPv4 host must be able to receive.
const SMALLEST_MTU: u32 = 576;
pub(crate) const INSIDE_NAME: &str = "eth0";

/// The link group of cables that may use the internet. Every link starts in group 0, so whatever
/// we forget or die before doing leaves a sandbox without internet, not with it.
pub(crate) const INTERNET_GROUP: u32 = 0x50b0;
/// The link group of cables for which the firewall's sets decide.
pub(crate) const RULED_GROUP: u32 = 0x50b1;
const CLOSED_GROUP: u32 = 0;

/// What a veth pair may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Closed,
    Open,
    /// As the firewall's sets say; nothing while they do not know it.
    Ruled,
}

impl Access {
    fn group(self) -> u32 {
        match self {
            Self::Closed => CLOSED_GROUP,
            Self::Open => INTERNET_GROUP,
            Self::Ruled => RULED_GROUP,
        }
    }
}

/// Both ends have addresses that follow from the slot's: locally administered, unicast.
pub(crate) fn inside_mac(address: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = address.octets();
    [0x02, 0x5b, a, b, c, d]
}

pub(crate) fn host_mac(address: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = address.octets();
    [0x06, 0x5b, a, b, c, d]
}

/// A link on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) mac: Vec<u8>,
    pub(crate) mtu: u32,
    /// Up, with a veth pair whose other end is up, and past the queue that drops everything.
    pub(crate) carries: bool,
}

/// What a new veth pair needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VethPair<'a> {
    pub(crate) name: &'a str,
    pub(crate) address: Ipv4Addr,
    pub(crate) gateway: Ipv4Addr,
    pub(crate) mtu: u32,
    pub(crate) access: Access,
}

impl VethPair<'_> {
    /// Makes the pair, still down: `eth0` in the namespace that hears this, the other end on the
    /// host. This way round because the kernel lets only the first end's number be chosen.
    pub(crate) fn attach(self, host: BorrowedFd<'_>) -> RouteNetlinkMessage {
        // One queue is plenty, and the default of one per processor costs memory on each end.
        let single = [LinkAttribute::NumTxQueues(1), LinkAttribute::NumRxQueues(1)];
        let mut peer = LinkUnspec::new_with_name(self.name)
            .address(host_mac(self.address).to_vec())
            .mtu(self.mtu)
            .link_group(self.access.group())
            .setns_by_fd(host.as_raw_fd())
            .build();
        peer.attributes.extend(single.clone());
        let mut inside = LinkVeth::new(INSIDE_NAME, self.name)
            .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
            .index(INSIDE)
            .address(inside_mac(self.address).to_vec())
            .mtu(self.mtu)
            .build();
        inside.attributes.extend(single);
        RouteNetlinkMessage::NewLink(inside)
    }
}

impl Netlink {
    /// The link with the gateway's address. A bridge without ports: every kernel that runs
    /// containers has the type, which is not so for `dummy`.
    pub(crate) fn hold_gateway(&mut self, name: &str, gateway: Ipv4Addr) -> Result<(), Error> {
        let doing = || format!("making the link {name} with the gateway address {gateway}");
        let create = NLM_F_CREATE | NLM_F_EXCL;
        let link = LinkBridge::new(name).build();
        or_exists(self.apply(RouteNetlinkMessage::NewLink(link), create)).doing(doing)?;
        namespace::set(&format!("ipv6/conf/{name}/disable_ipv6"), "1")?;
        let index = self.link(name)?.index;
        let up = LinkUnspec::new_with_index(index).up().build();
        self.apply(RouteNetlinkMessage::SetLink(up), 0)
            .doing(doing)?;
        let address = AddressMessageBuilder::<Ipv4Addr>::new()
            .index(index)
            .address(gateway, 32);
        or_exists(self.apply(RouteNetlinkMessage::NewAddress(address.build()), create)).doing(doing)
    }

    /// Brings the host's end up and routes the slot's one address to it.
    pub(crate) fn bring_up(&mut self, veth: VethPair<'_>) -> Result<(), Error> {
        let doing = || format!("bringing up the link {}", veth.name);
        namespace::set(&format!("ipv6/conf/{}/disable_ipv6", veth.name), "1")?;
        // New links inherit a default that an administrator may have set apart from the rest.
        namespace::set(&format!("ipv4/conf/{}/forwarding", veth.name), "1")?;
        let index = self.link(veth.name)?.index;
        let up = LinkUnspec::new_with_index(index).up().build();
        let route = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(veth.address, 32)
            .output_interface(index)
            .pref_source(veth.gateway)
            .scope(RouteScope::Link)
            .build();
        let replace = NLM_F_CREATE | NLM_F_REPLACE;
        self.apply_all(vec![
            (RouteNetlinkMessage::SetLink(up), 0),
            (
                neighbour(index, veth.address, inside_mac(veth.address)),
                replace,
            ),
            (RouteNetlinkMessage::NewRoute(route), replace),
        ])
        .doing(doing)
    }

    pub(crate) fn set_access(&mut self, name: &str, access: Access) -> Result<(), Error> {
        let link = LinkUnspec::new_with_name(name)
            .link_group(access.group())
            .build();
        self.apply(RouteNetlinkMessage::SetLink(link), 0)
            .doing(|| format!("changing the internet access of {name}"))
    }

    pub(crate) fn link(&mut self, name: &str) -> Result<Link, Error> {
        let ask = LinkUnspec::new_with_name(name).build();
        match self
            .get(RouteNetlinkMessage::GetLink(ask))
            .doing(|| format!("finding {name}"))?
        {
            RouteNetlinkMessage::NewLink(message) => Ok(Link::from(message)),
            other => Err(Error::kernel(
                format!("finding {name}"),
                std::io::Error::other(format!("unexpected answer {other:?}")),
            )),
        }
    }

    pub(crate) fn has_link(&mut self, name: &str) -> Result<bool, Error> {
        let ask = LinkUnspec::new_with_name(name).build();
        match self.get(RouteNetlinkMessage::GetLink(ask)) {
            Ok(_) => Ok(true),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NODEV) => Ok(false),
            Err(error) => Err(error).doing(|| format!("looking for {name}")),
        }
    }

    pub(crate) fn links(&mut self) -> Result<Vec<Link>, Error> {
        let all = self
            .list(&RouteNetlinkMessage::GetLink(LinkMessage::default()))
            .doing(|| "listing links".to_owned())?;
        Ok(all
            .into_iter()
            .filter_map(|message| match message {
                RouteNetlinkMessage::NewLink(message) => Some(Link::from(message)),
                _ => None,
            })
            .collect())
    }

    /// Removes a link; one that is gone already is no error.
    pub(crate) fn remove(&mut self, name: &str) -> Result<(), Error> {
        let link = LinkUnspec::new_with_name(name).build();
        match self.apply(RouteNetlinkMessage::DelLink(link), 0) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NODEV) => Ok(()),
            removed => removed.doing(|| format!("removing the link {name}")),
        }
    }

    /// The packet size of the link towards the internet: a sandbox that believes in a larger one
    /// depends on error messages that many networks swallow.
    pub(crate) fn uplink_mtu(&mut self) -> Result<u32, Error> {
        let mut ask = RouteMessage::default();
        ask.header.address_family = AddressFamily::Inet;
        let routes = self
            .list(&RouteNetlinkMessage::GetRoute(ask))
            .doing(|| "listing routes".to_owned())?;
        let uplinks: Vec<u32> = routes.iter().filter_map(default_route).collect();
        let links = self.links()?;
        let sizes = links
            .iter()
            .filter(|link| uplinks.contains(&link.index))
            .map(|link| link.mtu);
        Ok(sizes
            .min()
            .unwrap_or(USUAL_MTU)
            .clamp(SMALLEST_MTU, USUAL_MTU))
    }

    /// Every block of addresses that this host has an address or a route in, and by which link.
    pub(crate) fn used_blocks(&mut self) -> Result<Vec<(Ipv4Net, u32)>, Error> {
        let mut ask = AddressMessage::default();
        ask.header.family = AddressFamily::Inet;
        let addresses = self
            .list(&RouteNetlinkMessage::GetAddress(ask))
            .doing(|| "listing addresses".to_owned())?;
        let mut ask = RouteMessage::default();
        ask.header.address_family = AddressFamily::Inet;
        let routes = self
            .list(&RouteNetlinkMessage::GetRoute(ask))
            .doing(|| "listing routes".to_owned())?;
        Ok(addresses
            .into_iter()
            .chain(routes)
            .filter_map(block)
            .collect())
    }
}

impl From<LinkMessage> for Link {
    fn from(message: LinkMessage) -> Self {
        let mut link = Self {
            index: message.header.index,
            name: String::new(),
            mac: Vec::new(),
            mtu: USUAL_MTU,
            carries: false,
        };
        for attribute in message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name = name,
                LinkAttribute::Address(mac) => link.mac = mac,
                LinkAttribute::Mtu(mtu) => link.mtu = mtu,
                LinkAttribute::OperState(state) => link.carries = state == State::Up,
                _ => {}
            }
        }
        link
    }
}

/// The link of a default route.
fn default_route(message: &RouteNetlinkMessage) -> Option<u32> {
    let RouteNetlinkMessage::NewRoute(route) = message else {
        return None;
    };
    route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Oif(link) if route.header.destination_prefix_length == 0 => Some(*link),
            _ => None,
        })
}

/// The block of an address or a route; the default route says nothing about use.
fn block(message: RouteNetlinkMessage) -> Option<(Ipv4Net, u32)> {
    match message {
        RouteNetlinkMessage::NewAddress(message) => {
            let prefix = message.header.prefix_len;
            message
                .attributes
                .into_iter()
                .find_map(|attribute| match attribute {
                    AddressAttribute::Address(std::net::IpAddr::V4(address)) => {
                        Some((Ipv4Net::new(address, prefix)?, message.header.index))
                    }
                    _ => None,
                })
        }
        RouteNetlinkMessage::NewRoute(message) => {
            let prefix = message.header.destination_prefix_length;
            let (mut destination, mut link) = (None, 0);
            for attribute in message.attributes {
                match attribute {
                    RouteAttribute::Destination(RouteAddress::Inet(address)) => {
                        destination = Ipv4Net::new(address, prefix);
                    }
                    RouteAttribute::Oif(index) => link = index,
                    _ => {}
                }
            }
            destination
                .filter(|_| prefix > 0)
                .map(|block| (block, link))
        }
        _ => None,
    }
}

/// A neighbour that never expires.
pub(crate) fn neighbour(link: u32, address: Ipv4Addr, mac: [u8; 6]) -> RouteNetlinkMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.ifindex = link;
    message.header.state = NeighbourState::Permanent;
    message.attributes = vec![
        NeighbourAttribute::Destination(NeighbourAddress::Inet(address)),
        NeighbourAttribute::LinkLayerAddress(mac.to_vec()),
    ];
    RouteNetlinkMessage::NewNeighbour(message)
}

fn or_exists(done: std::io::Result<()>) -> std::io::Result<()> {
    match done {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::EXIST) => Ok(()),
        done => done,
    }
}
