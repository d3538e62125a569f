//! Opening the network with a range of addresses that nobody else uses.

use std::{io, time::Duration};

use soulbox_net::{Ipv4Net, NetConfig, Network};
use soulbox_runtime::{Error, Result};

use crate::{MachineConfig, ids, instance::Instance};

/// Servers that start at the same moment may pick the same range; one of them then picks again.
const ATTEMPTS: u32 = 20;

pub(crate) async fn open(
    config: &MachineConfig,
    instance: &mut Instance,
) -> Result<(Network, Ipv4Net)> {
    let mut attempt = 1;
    loop {
        let range: Ipv4Net = instance.range.parse().map_err(|_| {
            let invalid = io::ErrorKind::InvalidData.into();
            Error::io("instance.json has no valid network range", invalid)
        })?;
        let opened = Network::open(NetConfig {
            instance_tag: instance.tag.clone(),
            range,
            max_slots: slots(config),
            pool: config.pool,
            open_ranges: config.open_ranges.clone(),
            upstream_dns: Vec::new(),
        })
        .await;
        match opened {
            Ok(network) => return Ok((network, range)),
            Err(soulbox_net::Error::RangeInUse { .. })
                if attempt < ATTEMPTS && may_move(config, instance) =>
            {
                attempt += 1;
                instance.pick_another_range(&config.data_dir)?;
            }
            Err(error) => {
                return Err(Error::io(
                    "could not set up the network",
                    io::Error::other(error),
                ));
            }
        }
    }
}

/// One for each sandbox, and for what is kept ready beside them; no more than there are ids for.
fn slots(config: &MachineConfig) -> u32 {
    let ready = u32::try_from(config.pool).unwrap_or(u32::MAX);
    ids::RANGES.min(config.max_sandboxes.saturating_add(ready))
}

/// The operator named no range, and no sandbox has an address of the old one.
fn may_move(config: &MachineConfig, instance: &Instance) -> bool {
    let no_sandboxes = || {
        let folders = std::fs::read_dir(&config.sandboxes_dir);
        folders.map_or(true, |mut folders| folders.next().is_none())
    };
    config.network_range.is_none() && (instance.fresh || no_sandboxes())
}

pub(crate) fn network_error(error: soulbox_net::Error) -> Error {
    match error {
        soulbox_net::Error::NoCapacity { max } => Error::NoCapacity {
            what: format!("slots: all {max} network slots of this machine are in use"),
            retry_after: Duration::from_secs(2),
        },
        other => Error::io("network", io::Error::other(other)),
    }
}
