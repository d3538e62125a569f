//! From a sandbox's network settings to the rules of its slot.

use std::io;

use soulbox_net::{EgressPolicy, EgressRule, Ipv4Net};
use soulbox_runtime::{Error, Result};
use soulbox_types::{Destination, DomainPattern, NetworkPolicy};

/// Fails on an entry that cannot be carried out: a setting that is not understood opens nothing.
pub fn egress(network: &NetworkPolicy) -> Result<EgressPolicy> {
    let (allow, allow_names) = rules(&network.allow_out)?;
    let (deny, denied_names) = rules(&network.deny_out)?;
    if let Some(name) = denied_names.first() {
        let text = format!("{name} is denied by name, and only addresses can be");
        return Err(invalid(text));
    }
    Ok(EgressPolicy {
        internet: network.internet(),
        allow,
        allow_names,
        deny,
    })
}

fn rules(entries: &[String]) -> Result<(Vec<EgressRule>, Vec<DomainPattern>)> {
    let (mut rules, mut names) = (Vec::new(), Vec::new());
    for entry in entries {
        match entry.parse().map_err(invalid)? {
            Destination::V4 {
                address,
                prefix,
                ports,
            } => {
                rules
                    .extend(Ipv4Net::new(address, prefix).map(|range| EgressRule { range, ports }));
            }
            // Closed for every sandbox.
            Destination::V6(_) => {}
            Destination::Name(name) => names.push(name),
        }
    }
    Ok((rules, names))
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::io(
        "a network rule cannot be carried out",
        io::Error::new(io::ErrorKind::InvalidInput, error),
    )
}
