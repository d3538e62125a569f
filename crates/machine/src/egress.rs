//! From a sandbox's network settings to the rules of its slot.

use std::io;

use soulbox_net::{EgressPolicy, EgressRule, Ipv4Net};
use soulbox_runtime::{Error, Result};
use soulbox_types::{Destination, NetworkPolicy};

/// Fails on an entry that cannot be carried out: a setting that is not understood opens nothing.
pub fn egress(network: &NetworkPolicy) -> Result<EgressPolicy> {
    Ok(EgressPolicy {
        internet: network.internet(),
        allow: rules(&network.allow_out)?,
        deny: rules(&network.deny_out)?,
    })
}

fn rules(entries: &[String]) -> Result<Vec<EgressRule>> {
    let rules = entries.iter().map(|entry| match entry.parse() {
        Ok(Destination::V4 {
            address,
            prefix,
            ports,
        }) => Ok(Ipv4Net::new(address, prefix).map(|range| EgressRule { range, ports })),
        // Closed for every sandbox.
        Ok(Destination::V6(_)) => Ok(None),
        Err(error) => Err(Error::io(
            "a network rule cannot be carried out",
            io::Error::new(io::ErrorKind::InvalidInput, error),
        )),
    });
    rules.filter_map(Result::transpose).collect()
}
