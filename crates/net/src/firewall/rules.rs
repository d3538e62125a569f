//! The rules as text for `nft`. `docs/network.md` has them as a table with the reasons.

use std::fmt;
use std::net::Ipv4Addr;

use super::sets;
use crate::Ipv4Net;
use crate::by_name::GatePorts;
use crate::link::{INTERNET_GROUP, RULED_GROUP};
use crate::names::Names;
use crate::policy::Blocks;

/// Never reachable unless the operator opens it: other people's private networks, this host's own
/// and its provider's. Of the three documentation ranges 203.0.113.0/24 is left out: nobody's
/// private network uses it, and test beds (ours too) use it as their internet.
const PRIVATE: [Ipv4Net; 15] = [
    Ipv4Net::literal(0, 0, 0, 0, 8),        // this network
    Ipv4Net::literal(10, 0, 0, 0, 8),       // private
    Ipv4Net::literal(100, 64, 0, 0, 10),    // carrier-grade NAT; some clouds' metadata
    Ipv4Net::literal(127, 0, 0, 0, 8),      // loopback
    Ipv4Net::literal(168, 63, 129, 16, 32), // Azure's host agent, on a public address
    Ipv4Net::literal(169, 254, 0, 0, 16),   // link-local; metadata of most clouds
    Ipv4Net::literal(172, 16, 0, 0, 12),    // private
    Ipv4Net::literal(192, 0, 0, 0, 24),     // protocol assignments; Oracle's metadata
    Ipv4Net::literal(192, 0, 2, 0, 24),     // documentation
    Ipv4Net::literal(192, 88, 99, 0, 24),   // old 6to4 relays
    Ipv4Net::literal(192, 168, 0, 0, 16),   // private
    Ipv4Net::literal(198, 18, 0, 0, 15),    // benchmarking of network devices
    Ipv4Net::literal(198, 51, 100, 0, 24),  // documentation
    Ipv4Net::literal(224, 0, 0, 0, 4),      // multicast
    Ipv4Net::literal(240, 0, 0, 0, 4),      // reserved, and broadcast
];

/// Connections that one sandbox may have through the host. The kernel's table of them is shared
/// by the machine: without a limit, one sandbox could fill it and cut off everybody.
const FLOWS: u32 = 4096;

/// Packets with questions for names that one sandbox may send in a second, and at once: twice what
/// the forwarder passes on. All sandboxes share its sockets: more would only push out the others'.
const QUESTIONS: u32 = 2000;
const QUESTIONS_AT_ONCE: u32 = 4000;
/// After the last one. By then all of them may come at once again, so nothing is lost, and the
/// kernel has no other end for what it remembers of an address.
const QUESTIONS_FORGOTTEN: &str = "5s";

/// Protocols whose first four bytes are two ports.
const WITH_PORTS: &str = "tcp, udp, udplite, sctp, dccp";

#[derive(Debug)]
pub(crate) struct Rules<'a> {
    pub(crate) names: &'a Names,
    pub(crate) range: Ipv4Net,
    pub(crate) gateway: Ipv4Addr,
    /// Where the forwarder really listens; sandboxes always ask on 53.
    pub(crate) dns_port: u16,
    /// Where questions of those that may not ask are sent.
    pub(crate) refusing_port: u16,
    /// Where connections of those are sent whose rules have names.
    pub(crate) gate: GatePorts,
    pub(crate) open_ranges: &'a [Ipv4Net],
    /// By the sandbox's address.
    pub(crate) policies: Vec<(Ipv4Addr, &'a Blocks)>,
}

impl fmt::Display for Rules<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            range,
            gateway,
            dns_port,
            refusing_port,
            gate: GatePorts { http, https },
            ..
        } = self;
        let table = self.names.table();
        let cables = format!("\"{}*\"", self.names.slot_prefix());
        let private = elements(&PRIVATE);
        let opened = elements(self.open_ranges);
        write!(
            formatter,
            "add table inet {table}
delete table inet {table}
table inet {table} {{
    set private {{
        type ipv4_addr
        flags interval
        auto-merge
        {private}
    }}
    set opened {{
        type ipv4_addr
        flags interval
        auto-merge
        {opened}
    }}
    set ruled {{
        type ipv4_addr
    }}
    set named {{
        type ipv4_addr
    }}
    set by_domain {{
        type ipv4_addr
    }}
    set allow_hosts {{
        typeof ip saddr . ip daddr
        flags interval
    }}
    set allow_ports {{
        typeof ip saddr . ip daddr . th dport
        flags interval
    }}
    set deny_hosts {{
        typeof ip saddr . ip daddr
        flags interval
    }}
    set deny_ports {{
        typeof ip saddr . ip daddr . th dport
        flags interval
    }}
    set flows {{
        type ipv4_addr
        size 65535
        flags dynamic
    }}
    set asking {{
        type ipv4_addr
        size 65535
        flags dynamic, timeout
        timeout {QUESTIONS_FORGOTTEN}
    }}
    chain refuse {{
        counter
        meta l4proto tcp reject with tcp reset
        meta l4proto udp reject with icmpx type port-unreachable
        reject with icmpx type admin-prohibited
    }}
    chain genuine {{
        type filter hook prerouting priority raw; policy accept;
        iifname != {cables} accept
        meta nfproto ipv6 accept
        ip saddr != {range} counter drop
        fib saddr . iif oif missing counter drop
    }}
    chain to_host {{
        type filter hook input priority filter - 10; policy accept;
        iifname != {cables} accept
        ip daddr {gateway} udp dport {refusing_port} goto refused_names
        iifgroup != {{ {INTERNET_GROUP}, {RULED_GROUP} }} goto refuse
        ip daddr != {gateway} goto refuse
        iifgroup {RULED_GROUP} ip saddr != @ruled counter drop
        tcp dport {{ {http}, {https} }} goto at_gate
        iifgroup {RULED_GROUP} ip saddr != @named goto refuse
        ct state new add @flows {{ ip saddr ct count over {FLOWS} }} goto refuse
        udp dport {dns_port} jump asked
        tcp dport {dns_port} ct state new jump asked
        udp dport {dns_port} accept
        tcp dport {dns_port} accept
        goto refuse
    }}
    chain at_gate {{
        ct state established accept
        ip saddr != @by_domain goto refuse
        ct original ip daddr {gateway} goto refuse
        ct state new add @flows {{ ip saddr ct count over {FLOWS} }} goto refuse
        accept
    }}
    chain refused_names {{
        ct state new add @flows {{ ip saddr ct count over {FLOWS} }} goto refuse
        jump asked
        accept
    }}
    chain asked {{
        update @asking {{ ip saddr limit rate over {QUESTIONS}/second burst {QUESTIONS_AT_ONCE} packets }} counter drop
    }}
    chain from_host {{
        type filter hook output priority filter - 10; policy accept;
        oifname {cables} ct state new goto refuse
    }}
    chain through {{
        type filter hook forward priority filter - 10; policy accept;
        iifname {cables} goto leaving
        oifname {cables} goto entering
    }}
    chain leaving {{
        meta nfproto ipv6 goto refuse
        iifgroup != {{ {INTERNET_GROUP}, {RULED_GROUP} }} goto refuse
        oifname {cables} goto refuse
        ip daddr {range} goto refuse
        ip daddr @private ip daddr != @opened goto refuse
        ct state invalid counter drop
        iifgroup {RULED_GROUP} ct state new jump ruling
        ct state new add @flows {{ ip saddr ct count over {FLOWS} }} goto refuse
        counter accept
    }}
    chain ruling {{
        ip saddr != @ruled counter drop
        ip saddr . ip daddr @allow_hosts return
        meta l4proto {{ {WITH_PORTS} }} ip saddr . ip daddr . th dport @allow_ports return
        ip saddr . ip daddr @deny_hosts goto refuse
        meta l4proto {{ {WITH_PORTS} }} ip saddr . ip daddr . th dport @deny_ports goto refuse
    }}
    chain entering {{
        ct state established,related counter accept
        counter drop
    }}
    chain names {{
        type nat hook prerouting priority dstnat; policy accept;
        iifname != {cables} accept
        iifgroup {RULED_GROUP} ip saddr @by_domain tcp dport {{ 80, 443 }} goto to_gate
        iifgroup != {{ {INTERNET_GROUP}, {RULED_GROUP} }} ip daddr {gateway} udp dport 53 dnat ip to {gateway}:{refusing_port}
        iifgroup {RULED_GROUP} ip saddr @ruled ip saddr != @named ip daddr {gateway} udp dport 53 dnat ip to {gateway}:{refusing_port}
        ip daddr {gateway} meta l4proto {{ tcp, udp }} th dport 53 dnat ip to {gateway}:{dns_port}
    }}
    chain to_gate {{
        ip daddr @private ip daddr != @opened return
        ip saddr . ip daddr @allow_hosts return
        ip saddr . ip daddr . th dport @allow_ports return
        tcp dport 80 dnat ip to {gateway}:{http}
        tcp dport 443 dnat ip to {gateway}:{https}
    }}
    chain masks {{
        type nat hook postrouting priority srcnat; policy accept;
        ip saddr {range} oifname != {cables} masquerade
    }}
}}
"
        )?;
        self.policies.iter().try_for_each(|(sandbox, blocks)| {
            formatter.write_str(&sets::change(&table, *sandbox, None, Some(blocks)))
        })
    }
}

/// Whether no sandbox may reach this address, whatever its own rules say.
pub(crate) fn is_closed(address: Ipv4Addr, open_ranges: &[Ipv4Net]) -> bool {
    let within = |ranges: &[Ipv4Net]| ranges.iter().any(|range| range.contains(address));
    within(&PRIVATE) && !within(open_ranges)
}

/// A set cannot be given an empty list.
fn elements(ranges: &[Ipv4Net]) -> String {
    if ranges.is_empty() {
        return String::new();
    }
    let ranges: Vec<String> = ranges.iter().map(ToString::to_string).collect();
    format!("elements = {{ {} }}", ranges.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(address: &str) -> bool {
        PRIVATE
            .iter()
            .any(|range| range.contains(address.parse().unwrap()))
    }

    #[test]
    fn metadata_and_private_addresses_are_denied() {
        for address in [
            "169.254.169.254",
            "100.100.100.200",
            "192.0.0.192",
            "168.63.129.16",
            "10.0.0.1",
        ] {
            assert!(denied(address), "{address}");
        }
        for address in [
            "172.31.255.255",
            "192.168.1.1",
            "127.0.0.1",
            "255.255.255.255",
        ] {
            assert!(denied(address), "{address}");
        }
    }

    #[test]
    fn the_internet_and_our_test_beds_are_not_denied() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "203.0.113.80",
            "172.32.0.1",
            "11.0.0.1",
        ] {
            assert!(!denied(address), "{address}");
        }
    }
}
