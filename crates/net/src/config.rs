//! The configuration, and a free address range as the default.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};

use crate::error::Doing;
use crate::names::Names;
use crate::netlink::Netlink;
use crate::{Error, Ipv4Net};

/// More would need longer link names than the kernel allows to be readable, and more memory than
/// one machine's sandboxes leave.
const MOST_SLOTS: u32 = 4096;
/// Network address, gateway, and the last address that some tools take for a broadcast.
const NOT_SLOTS: u64 = 3;

const NO_LINK: u32 = 0;

#[derive(Debug, Clone)]
pub struct NetConfig {
    /// Four lower-case hex digits; every name we make carries it.
    pub instance_tag: String,
    /// The gateway is its second address, slot n the (n + 3)rd.
    pub range: Ipv4Net,
    /// At most 4096.
    pub max_slots: u32,
    /// How many free slots are kept ready.
    pub pool: usize,
    /// Private ranges that sandboxes with internet access may reach.
    pub open_ranges: Vec<Ipv4Net>,
    /// Where names are resolved; empty means as in the host's `/etc/resolv.conf`.
    pub upstream_dns: Vec<SocketAddr>,
}

impl NetConfig {
    /// The first of 10.213.0.0/16 to 10.219.0.0/16 that nothing on this host uses, and its number.
    /// What an instance of the same tag uses counts as free.
    pub fn pick_range(tag: &str) -> Result<(Ipv4Net, u8), Error> {
        let names = Names::new(tag)?;
        let mut netlink = Netlink::open().doing(|| "opening netlink".to_owned())?;
        let users = users(&mut netlink, &names)?;
        (0..=6)
            .map(|block| (Ipv4Net::literal(10, 213 + block, 0, 0, 16), block))
            .find(|(range, _)| !users.iter().any(|(used, _)| used.overlaps(*range)))
            .ok_or_else(|| Error::NoFreeRange {
                users: names_of(&users),
            })
    }

    pub(crate) fn check(&self) -> Result<Names, Error> {
        let room = self.range.size().saturating_sub(NOT_SLOTS);
        if self.max_slots == 0 || self.max_slots > MOST_SLOTS {
            return Err(Error::Config(format!(
                "{} network slots: choose between 1 and {MOST_SLOTS}",
                self.max_slots
            )));
        }
        if u64::from(self.max_slots) > room {
            return Err(Error::Config(format!(
                "the range {} has room for {room} sandboxes, not for {}",
                self.range, self.max_slots
            )));
        }
        Names::new(&self.instance_tag)
    }

    pub(crate) fn gateway(&self) -> Ipv4Addr {
        self.offset(1)
    }

    pub(crate) fn slot_address(&self, index: u32) -> Ipv4Addr {
        self.offset(index + 2)
    }

    fn offset(&self, offset: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.range.address()).wrapping_add(offset))
    }
}

/// The blocks that links other than ours use, with the name of the link.
fn users(netlink: &mut Netlink, names: &Names) -> Result<Vec<(Ipv4Net, String)>, Error> {
    let links = netlink.links()?;
    let name = |index| {
        links
            .iter()
            .find(|link| link.index == index)
            .map(|link| link.name.clone())
    };
    let blocks = netlink.used_blocks()?.into_iter();
    Ok(blocks
        .filter_map(|(block, link)| match link {
            NO_LINK => Some((block, "a route without a link".to_owned())),
            // A link that went between the two lists uses nothing any more.
            link => Some((block, name(link)?)),
        })
        .filter(|(_, link)| !names.is_ours(link))
        .collect())
}

/// The links, each once. Those of slots are many, and each server's holder is among them.
fn names_of(users: &[(Ipv4Net, String)]) -> String {
    let all = (0..=6).map(|block| Ipv4Net::literal(10, 213 + block, 0, 0, 16));
    let first = all.filter_map(|range| users.iter().find(|(used, _)| used.overlaps(range)));
    let names: BTreeSet<&str> = first.map(|(_, name)| name.as_str()).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

/// Refuses a range of which another link has a part. A wider route (a VPN's 10.0.0.0/8) is no
/// reason: the operator chose this range knowing it, and ours is the narrower one.
pub(crate) fn check_unused(
    netlink: &mut Netlink,
    names: &Names,
    range: Ipv4Net,
) -> Result<(), Error> {
    let taken = users(netlink, names)?
        .into_iter()
        .find(|(used, _)| used.prefix() >= range.prefix() && range.overlaps(*used));
    taken.map_or(Ok(()), |(_, user)| Err(Error::RangeInUse { range, user }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(range: &str, max_slots: u32) -> NetConfig {
        NetConfig {
            instance_tag: "0000".to_owned(),
            range: range.parse().unwrap(),
            max_slots,
            pool: 0,
            open_ranges: Vec::new(),
            upstream_dns: Vec::new(),
        }
    }

    #[test]
    fn slots_follow_the_gateway() {
        let config = config("10.213.0.0/16", 4096);
        assert_eq!(config.gateway(), Ipv4Addr::new(10, 213, 0, 1));
        assert_eq!(config.slot_address(0), Ipv4Addr::new(10, 213, 0, 2));
        assert_eq!(config.slot_address(4095), Ipv4Addr::new(10, 213, 16, 1));
    }

    #[test]
    fn who_uses_the_ranges_is_named_once() {
        let users = [
            "10.213.0.1/32",
            "10.213.0.0/16",
            "10.214.0.0/15",
            "192.168.0.0/24",
        ]
        .map(|range| range.parse().unwrap());
        let links = ["sbx1a2b", "sbx1a2b-4", "tun0", "eth0"].map(str::to_owned);
        let users: Vec<_> = users.into_iter().zip(links).collect();
        assert_eq!(names_of(&users), "sbx1a2b, tun0");
    }

    #[test]
    fn more_slots_than_addresses_are_refused() {
        assert!(config("10.213.0.0/24", 253).check().is_ok());
        assert!(config("10.213.0.0/24", 254).check().is_err());
        assert!(config("10.213.0.0/31", 1).check().is_err());
        assert!(config("10.0.0.0/8", 4097).check().is_err());
        assert!(config("10.0.0.0/8", 0).check().is_err());
    }

    #[test]
    fn a_picked_range_is_one_of_seven() {
        if let Ok((range, block)) = NetConfig::pick_range("0000") {
            assert!(block <= 6);
            assert_eq!(
                range.to_string(),
                format!("10.{}.0.0/16", 213 + u32::from(block))
            );
        }
    }
}
