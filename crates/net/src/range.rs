//! A block of IPv4 addresses in CIDR notation.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// `10.213.0.0/16`: the address is always the first of the block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ipv4Net {
    address: Ipv4Addr,
    prefix: u8,
}

impl Ipv4Net {
    /// `None` when the prefix is longer than 32 bits. Host bits are cleared.
    pub fn new(address: Ipv4Addr, prefix: u8) -> Option<Self> {
        (prefix <= 32).then(|| {
            let bits = u32::from(address) & mask(prefix);
            Self {
                address: Ipv4Addr::from(bits),
                prefix,
            }
        })
    }

    pub(crate) const fn literal(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Self {
        Self {
            address: Ipv4Addr::new(a, b, c, d),
            prefix,
        }
    }

    pub fn address(self) -> Ipv4Addr {
        self.address
    }

    pub fn prefix(self) -> u8 {
        self.prefix
    }

    /// How many addresses the block has.
    pub fn size(self) -> u64 {
        1 << (32 - u32::from(self.prefix))
    }

    /// The address at this distance from the first, if it is still inside.
    pub fn nth(self, offset: u32) -> Option<Ipv4Addr> {
        (u64::from(offset) < self.size())
            .then(|| Ipv4Addr::from(u32::from(self.address).wrapping_add(offset)))
    }

    pub fn contains(self, address: Ipv4Addr) -> bool {
        u32::from(address) & mask(self.prefix) == u32::from(self.address)
    }

    pub fn overlaps(self, other: Self) -> bool {
        self.contains(other.address) || other.contains(self.address)
    }
}

fn mask(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0)
}

impl fmt::Display for Ipv4Net {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.prefix)
    }
}

impl fmt::Debug for Ipv4Net {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an IPv4 range such as 10.1.0.0/16")]
pub struct InvalidRange(String);

impl FromStr for Ipv4Net {
    type Err = InvalidRange;

    /// A bare address is the block of that one address.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidRange(text.to_owned());
        let (address, prefix) = text.split_once('/').unwrap_or((text, "32"));
        let address: Ipv4Addr = address.parse().map_err(|_| invalid())?;
        let prefix: u8 = prefix.parse().map_err(|_| invalid())?;
        let range = Self::new(address, prefix).ok_or_else(invalid)?;
        // 10.1.2.3/16 is more likely a mistake than intended: say so instead of opening 65,536 addresses.
        if range.address == address {
            Ok(range)
        } else {
            Err(invalid())
        }
    }
}

impl TryFrom<String> for Ipv4Net {
    type Error = InvalidRange;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Ipv4Net> for String {
    fn from(range: Ipv4Net) -> Self {
        range.to_string()
    }
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> Ipv4Net {
        text.parse().unwrap()
    }

    #[test]
    fn cidr_notation_reads_and_prints_the_same() {
        for text in ["10.213.0.0/16", "0.0.0.0/0", "192.0.2.7/32"] {
            assert_eq!(range(text).to_string(), text);
        }
        assert_eq!(range("192.0.2.7"), range("192.0.2.7/32"));
    }

    #[test]
    fn host_bits_and_nonsense_are_refused() {
        for text in [
            "10.1.2.3/16",
            "10.0.0.0/33",
            "10.0.0/8",
            "",
            "/8",
            "::/0",
            "10.0.0.0/-1",
        ] {
            assert!(text.parse::<Ipv4Net>().is_err(), "{text}");
        }
    }

    #[test]
    fn nth_stays_inside_the_block() {
        assert_eq!(
            range("10.213.0.0/16").nth(258),
            Some(Ipv4Addr::new(10, 213, 1, 2))
        );
        assert_eq!(range("10.0.0.0/30").nth(4), None);
        assert_eq!(range("0.0.0.0/0").nth(u32::MAX), Some(Ipv4Addr::BROADCAST));
    }

    #[test]
    fn blocks_overlap_when_one_holds_the_other() {
        assert!(range("10.0.0.0/8").overlaps(range("10.213.0.0/16")));
        assert!(range("10.213.5.0/24").overlaps(range("10.213.0.0/16")));
        assert!(!range("10.214.0.0/16").overlaps(range("10.213.0.0/16")));
    }
}
