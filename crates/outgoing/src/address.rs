//! Which addresses belong to the internet at large. Webhooks, references of images, redirects and
//! token servers come from tenants and others who are not trusted: they must not lead into the operator's own
//! network. Asked of the very address that is connected to, after its name was looked up.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use crate::route::is_elsewhere;

/// Whether connecting to it leads out of the operator's network, this machine included. To be asked
/// of the address itself, right before: interfaces change.
///
/// An address that a provider translates to one of this machine's is not known as such.
pub fn leads_outside(address: IpAddr) -> io::Result<bool> {
    Ok(is_public(address) && is_elsewhere(translated(address))?)
}

/// The address where packets end up.
fn translated(address: IpAddr) -> IpAddr {
    let IpAddr::V6(long) = address else {
        return address;
    };
    let inner = long.to_ipv4().or_else(|| behind_nat64(long));
    inner.map_or(address, IpAddr::V4)
}

pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// As for sandboxes (`docs/network.md`): of the documentation ranges 203.0.113.0/24 is left out,
/// which nobody's private network uses but test beds do, as their internet.
fn is_public_v4(address: Ipv4Addr) -> bool {
    let special = match address.octets() {
        // This network, private, loopback, multicast, reserved.
        [0 | 10 | 127 | 224.., ..]
        // Carrier-grade NAT, and some clouds' metadata.
        | [100, 64..=127, ..]
        // Azure's host agent.
        | [168, 63, 129, 16]
        // Link-local: metadata of most clouds.
        | [169, 254, ..]
        | [172, 16..=31, ..]
        // Protocol assignments, documentation, old relays.
        | [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [192, 168, ..]
        | [198, 18 | 19, ..]
        | [198, 51, 100, _] => true,
        _ => false,
    };
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(inner) = address.to_ipv4() {
        return is_public_v4(inner);
    }
    if let Some(inner) = behind_nat64(address) {
        return is_public_v4(inner);
    }
    match address.segments() {
        // Tunnels whose other end is an IPv4 address, and documentation.
        [0x2001, 0 | 0xdb8, ..] | [0x2002 | 0x3fff, ..] => false,
        // The only part of the space that is given out.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

/// What NAT64 makes of it: the IPv4 address at its end.
fn behind_nat64(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [0x64, 0xff9b, 0, 0, 0, 0, high, low] = address.segments() else {
        return None;
    };
    let [a, b] = high.to_be_bytes();
    let [c, d] = low.to_be_bytes();
    Some(Ipv4Addr::new(a, b, c, d))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_networks_and_metadata_services_are_not_public() {
        for text in [
            "127.0.0.1",
            "127.8.8.8",
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "100.100.100.200",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "192.0.0.192",
            "192.168.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "fd00:ec2::254",
            "fe80::1",
            "2002:7f00:1::",
            "ff02::1",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn the_internet_is_public_and_so_is_the_test_beds() {
        for text in [
            "1.1.1.1",
            "100.128.0.1",
            "172.32.0.1",
            "203.0.113.80",
            "2606:4700::1111",
            "::ffff:8.8.8.8",
        ] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn what_is_written_as_ipv6_is_asked_for_as_what_it_becomes() {
        for (text, becomes) in [
            ("::ffff:203.0.113.7", "203.0.113.7"),
            ("64:ff9b::cb00:7107", "203.0.113.7"),
            ("2606:4700::1111", "2606:4700::1111"),
        ] {
            let becomes: IpAddr = becomes.parse().unwrap();
            assert_eq!(translated(text.parse().unwrap()), becomes);
        }
    }
}
