//! Which addresses count as one client where a limit is shared out.

use std::net::{IpAddr, Ipv6Addr};

/// The subnet that counts as one client: an address of IPv4, or a /64 of IPv6, as one host may use
/// all addresses of that.
pub fn client_subnet(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) >> 64 << 64;
            Ipv6Addr::from(network).into()
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_ipv6_is_one_client_and_an_address_of_ipv4_is_one_however_written() {
        let of = |text: &str| client_subnet(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:0:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
