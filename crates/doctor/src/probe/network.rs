//! Firewall rules and a pair of virtual interfaces, in a network namespace of their own.

use std::time::Duration;

use rtnetlink::{LinkUnspec, LinkVeth};
use rustix::thread::UnshareFlags;

use super::{Answer, Step, namespaces};
use crate::child;

const LIMIT: Duration = Duration::from_secs(5);

/// Sets, address translation, connection tracking and hooks: what the real rules use.
const RULES: &str = "table inet soulbox_doctor {
  set closed { type ipv4_addr; flags interval; elements = { 10.0.0.0/8, 169.254.0.0/16 } }
  chain forward {
    type filter hook forward priority 0; policy drop;
    ct state established,related accept
    ip daddr @closed drop
  }
  chain postrouting {
    type nat hook postrouting priority 100;
    ip saddr 100.64.0.0/10 masquerade
  }
}
";

pub(super) fn nftables() -> Answer {
    let nft = child::find("nft").ok_or("nft is not installed")?;
    namespaces::enter(UnshareFlags::NEWNET).step("network namespace")?;
    let run = |arguments: &[&str], input: &str| -> Answer {
        let done = child::run(&nft, arguments, &[], input, LIMIT).step("nft")?;
        match done.success {
            Some(true) => Ok(done.stdout),
            Some(false) => Err(format!("nft: {}", done.complaint())),
            None => Err(format!("nft did not end within {} s", LIMIT.as_secs())),
        }
    };
    run(&["-f", "-"], RULES)?;
    run(
        &[
            "add",
            "element",
            "inet",
            "soulbox_doctor",
            "closed",
            "{ 192.168.0.0/16 }",
        ],
        "",
    )?;
    run(&["delete", "table", "inet", "soulbox_doctor"], "")?;
    let version = run(&["--version"], "")?;
    Ok(version.trim().to_owned())
}

pub(super) fn veth() -> Answer {
    namespaces::enter(UnshareFlags::NEWNET).step("network namespace")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .step("netlink")?;
    runtime.block_on(async {
        tokio::time::timeout(LIMIT, make_pair())
            .await
            .map_err(|_| format!("netlink did not answer within {} s", LIMIT.as_secs()))?
    })
}

async fn make_pair() -> Answer {
    let (connection, handle, _) = rtnetlink::new_connection().step("netlink")?;
    let connection = tokio::spawn(connection);
    let links = handle.link();
    links
        .add(LinkVeth::new("doctor0", "doctor1").build())
        .execute()
        .await
        .step("make a veth pair")?;
    for name in ["lo", "doctor0"] {
        links
            .set(LinkUnspec::new_with_name(name).up().build())
            .execute()
            .await
            .step("bring a link up")?;
    }
    connection.abort();
    Ok("loopback and a veth pair came up".into())
}
