//! Firewall tables of servers that are gone for good.
//!
//! A server takes its table away when it stops and no sandbox needs it. One that is killed leaves it
//! for its next start, which never comes when its data folder was removed.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

use super::host::{OPENING, within};
use crate::firewall;
use crate::names::Names;
use crate::netlink::Netlink;
use crate::threads::Threads;

/// Removes tables that guard nothing. A server has its gateway before it has a table, and takes its
/// links away before it: a table without any link is nobody's.
pub(super) async fn remove_orphans(builder: &Threads, netlink: &Arc<Mutex<Netlink>>) {
    let tables = match firewall::tables().await {
        Ok(tables) => tables,
        Err(error) => {
            tracing::debug!(%error, "firewall tables cannot be listed");
            return;
        }
    };
    let servers: Vec<_> = tables
        .iter()
        .filter_map(|name| Names::of_table(name))
        .collect();
    if servers.is_empty() {
        return;
    }
    let netlink = Arc::clone(netlink);
    // After the tables: a link that is made meanwhile is seen.
    let links = within(OPENING, builder, move || netlink.lock().links());
    let links: BTreeSet<_> = match links.await {
        Ok(links) => links.into_iter().map(|link| link.name).collect(),
        Err(error) => {
            tracing::debug!(%error, "links cannot be listed");
            return;
        }
    };
    for server in servers {
        if links.iter().any(|link| server.is_ours(link)) {
            continue;
        }
        let table = server.table();
        match firewall::remove(&table).await {
            Ok(()) => tracing::info!(table, "removed the firewall of a server that is gone"),
            Err(error) => {
                tracing::warn!(table, %error, "cannot remove a firewall that guards nothing");
            }
        }
    }
}
