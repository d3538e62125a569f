//! The network of one server: what it opens on the host, and the slots it gives out.

mod host;
mod policies;
mod sweep;
mod tasks;

use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::by_name::{ByNameStats, Counters};
use crate::dns::{NameStats, QueryLimiter};
use crate::error::Doing;
use crate::firewall::{self, Watch};
use crate::names::Names;
use crate::netlink::Netlink;
use crate::{EgressPolicy, Error, NetConfig, Slot, Traffic};
use host::Host;

/// How long `acquire` waits for slots that are on their way when no other is free.
const COMING: Duration = Duration::from_secs(3);
const BUILDING: Duration = Duration::from_secs(1);
const CLOSING: Duration = Duration::from_secs(10);

/// The network of one server. Clones are the same network; when the last one is dropped its tasks
/// stop, while sandboxes and firewall stay as they are for the next server to adopt.
#[derive(Clone, Debug)]
pub struct Network {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    host: Arc<Host>,
    limiter: Arc<QueryLimiter>,
    by_name: Arc<Counters>,
    tasks: TaskTracker,
    stop: CancellationToken,
    _stop_on_drop: DropGuard,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.host.slot_table.drain_ready();
    }
}

/// How many slots there are of each kind; those on their way out are in none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetStats {
    /// Not built.
    pub free: usize,
    /// Given out.
    pub used: usize,
    /// Built and ready.
    pub pool: usize,
}

impl Network {
    /// Makes the gateway, the firewall and the name server, and starts to fill the pool. Slots
    /// whose links exist already stay untouched and can be adopted.
    pub async fn open(config: NetConfig) -> Result<Self, Error> {
        let watch = Watch::new().doing(|| "watching the firewall".to_owned())?;
        let tag = config.instance_tag.clone();
        let (host, forwarder, gate) = match Host::open(config).await {
            Ok(opened) => opened,
            Err(error) => {
                undo(&tag, &error).await;
                return Err(error);
            }
        };
        let host = Arc::new(host);
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(tasks::watch_leaving(Arc::clone(&host), stop.clone()));
        tasks.spawn(tasks::fill_pool(Arc::clone(&host), stop.clone()));
        tasks.spawn(tasks::guard_rules(Arc::clone(&host), watch, stop.clone()));
        tasks.spawn(tasks::guard_flows(Arc::clone(&host), stop.clone()));
        let limiter = forwarder.limiter();
        tasks.spawn(forwarder.serve(stop.clone()));
        let by_name = gate.counters();
        tasks.spawn(gate.serve(stop.clone()));
        let guard = stop.clone().drop_guard();
        let inner = Inner {
            host,
            limiter,
            by_name,
            tasks,
            stop,
            _stop_on_drop: guard,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// A slot with internet access: a ready one, else one built now.
    pub async fn acquire(&self) -> Result<Slot, Error> {
        let host = &self.inner.host;
        let deadline = Instant::now() + COMING;
        loop {
            // Registered before looking: what comes in between is not missed.
            let mut available = pin!(host.slot_table.available.notified());
            available.as_mut().enable();
            if self.inner.stop.is_cancelled() {
                return Err(Error::Closed);
            }
            if let Some(slot) = host.slot_table.take_ready() {
                return Ok(slot);
            }
            if let Some(lease) = host.slot_table.lease() {
                return host.build(lease).await;
            }
            if !host.slot_table.will_have_one() || timeout_at(deadline, available).await.is_err() {
                return Err(Error::NoCapacity {
                    max: host.config.max_slots,
                });
            }
        }
    }

    /// Takes over the slot of a sandbox that a former server started. `netns` was opened from
    /// `/proc/<pid>/ns/net` of one of its processes. One that had rules gets nowhere until this.
    pub async fn adopt(
        &self,
        index: u32,
        netns: OwnedFd,
        policy: &EgressPolicy,
    ) -> Result<Slot, Error> {
        let host = &self.inner.host;
        let lease = host
            .slot_table
            .claim(index)
            .ok_or_else(|| Error::NotAdoptable {
                index,
                why: "its link is gone, or another sandbox has it".to_owned(),
            })?;
        host.adopt(lease, netns, policy).await
    }

    /// Replaces what a sandbox may reach. Rules decide about new connections; a sandbox that is
    /// closed altogether loses the running ones at once.
    pub async fn set_policy(&self, slot: &Slot, policy: &EgressPolicy) -> Result<(), Error> {
        self.inner.host.set_policy(slot.index(), policy).await
    }

    /// Whether nobody has this slot and the last sandbox that had it is gone.
    pub fn is_free(&self, index: u32) -> bool {
        self.inner.host.slot_table.is_free(index)
    }

    pub fn stats(&self) -> NetStats {
        self.inner.host.slot_table.stats()
    }

    /// Questions for names since the start.
    pub fn names(&self) -> NameStats {
        self.inner.limiter.stats()
    }

    /// Connections of sandboxes whose rules have names.
    pub fn by_name(&self) -> ByNameStats {
        self.inner.by_name.stats()
    }

    /// What the firewall counted.
    pub async fn traffic(&self) -> Result<Traffic, Error> {
        firewall::traffic(&self.inner.host.names.table()).await
    }

    /// What on this host may keep sandboxes from the internet, and what to do about it.
    pub fn warnings(&self) -> &[String] {
        &self.inner.host.warnings
    }

    /// Removes everything from the host. While a sandbox still runs, its rules stay.
    pub async fn close(&self) {
        let Inner {
            host, tasks, stop, ..
        } = &*self.inner;
        stop.cancel();
        tasks.close();
        if timeout(CLOSING, tasks.wait()).await.is_err() {
            tracing::warn!("the network's tasks did not end in time");
        }
        host.slot_table.drain_ready();
        let start = Instant::now();
        while let Some(link) = host.present_link().await {
            // A slot that was being built for the pool counts as used until it is dropped again.
            let limit = if host.slot_table.stats().used > 0 {
                BUILDING
            } else {
                CLOSING
            };
            if start.elapsed() > limit {
                tracing::warn!(link, "a sandbox still uses the network; its firewall stays");
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        if let Err(error) = host.forget_all_flows().await {
            tracing::warn!(%error, "connections of sandboxes that ended cannot be removed");
        }
        Self::reclaim(&host.config.instance_tag).await;
    }

    /// Removes what a server of this tag left on the host, cutting off any sandbox it still has.
    pub async fn reclaim(tag: &str) {
        if let Err(error) = reclaim(tag).await {
            tracing::warn!(tag, %error, "the network could not be cleaned up completely");
        }
    }
}

/// Half of a network is of no use to anybody, unless sandboxes of a former server have theirs on it.
async fn undo(tag: &str, error: &Error) {
    let Ok(names) = Names::new(tag) else { return };
    // Found before anything was made.
    if matches!(error, Error::RangeInUse { .. } | Error::Config(_)) {
        return;
    }
    let look = move || {
        let links = Netlink::open().ok()?.links().ok()?;
        Some(links.iter().any(|link| names.slot_of(&link.name).is_some()))
    };
    if let Ok(Some(false)) = tokio::task::spawn_blocking(look).await {
        Network::reclaim(tag).await;
    }
}

async fn reclaim(tag: &str) -> Result<(), Error> {
    let names = Names::new(tag)?;
    let table = names.table();
    let remove_links = move || {
        let mut netlink = Netlink::open().doing(|| "opening netlink".to_owned())?;
        for link in netlink.links()? {
            if names.is_ours(&link.name) {
                netlink.remove(&link.name)?;
            }
        }
        netlink.remove(&names.holder())
    };
    tokio::task::spawn_blocking(remove_links)
        .await
        .map_err(|error| Error::kernel("removing links", std::io::Error::other(error)))??;
    // The rules go last, after the last veth pair they guard.
    firewall::remove(&table).await
}
