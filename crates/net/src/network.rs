//! The network of one server: what it opens on the host, and the slots it gives out.

mod tasks;

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::error::Doing;
use crate::firewall::{self, Rules, Watch};
use crate::link::Cable;
use crate::names::Names;
use crate::namespace::{self, Namespace};
use crate::netlink::Netlink;
use crate::slot::{Book, Lease};
use crate::threads::{Threads, current_namespace, enter};
use crate::{Error, NetConfig, Slot, config, dns, link};

/// A change in the kernel takes milliseconds; under a storm of them, still far less than this.
const CHANGE: Duration = Duration::from_secs(10);
/// How long `acquire` waits for slots that are on their way out when no other is free.
const LEAVING: Duration = Duration::from_secs(3);
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
    tasks: TaskTracker,
    stop: CancellationToken,
    _stop_on_drop: DropGuard,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.host.book.drain_ready();
    }
}

/// The host's side of things.
#[derive(Debug)]
pub(crate) struct Host {
    config: NetConfig,
    names: Names,
    mtu: u32,
    warnings: Vec<String>,
    book: Arc<Book>,
    home: OwnedFd,
    /// Any socket in the host's namespace: asks whether a link exists.
    probe: OwnedFd,
    /// Locked only on the one builder thread, so nobody waits for it.
    netlink: Mutex<Netlink>,
    builder: Threads,
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
        let names = config.check()?;
        let doing = || "opening the host's network namespace".to_owned();
        let builder = Threads::new("sbx-net", 1).doing(doing)?;
        let home = current_namespace().doing(doing)?;
        let flags = SocketFlags::CLOEXEC;
        let probe = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)
            .doing(|| "opening a socket".to_owned())?;
        let (netlink, mtu) = {
            let (config, names) = (config.clone(), names.clone());
            let check = move || {
                let mut netlink = Netlink::open().doing(|| "opening netlink".to_owned())?;
                config::check_unused(&mut netlink, &names, config.range)?;
                let mtu = netlink.uplink_mtu()?;
                Ok::<_, Error>((netlink, mtu))
            };
            on(&builder, check).await?
        };
        // Rules first: from here on whatever comes up is behind them.
        let watch = Watch::new().doing(|| "watching the firewall".to_owned())?;
        firewall::apply(&rules(&config, &names)).await?;
        let (netlink, present) = {
            let (config, names) = (config.clone(), names.clone());
            on(&builder, move || prepare_host(netlink, &config, &names)).await?
        };
        let warnings = firewall::warnings(&names).await;
        for warning in &warnings {
            tracing::warn!("{warning}");
        }
        let servers = dns::Forwarder::bind(&config).await?;

        let host = Arc::new(Host {
            book: Arc::new(Book::new(config.max_slots, present)),
            config,
            names,
            mtu,
            warnings,
            home,
            probe,
            netlink: Mutex::new(netlink),
            builder,
        });
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(tasks::watch_leaving(Arc::clone(&host), stop.clone()));
        tasks.spawn(tasks::fill_pool(Arc::clone(&host), stop.clone()));
        tasks.spawn(tasks::guard_rules(Arc::clone(&host), watch, stop.clone()));
        tasks.spawn(servers.serve(stop.clone()));
        let guard = stop.clone().drop_guard();
        Ok(Self {
            inner: Arc::new(Inner {
                host,
                tasks,
                stop,
                _stop_on_drop: guard,
            }),
        })
    }

    /// A slot with internet access: a ready one, else one built now.
    pub async fn acquire(&self) -> Result<Slot, Error> {
        let host = &self.inner.host;
        let deadline = Instant::now() + LEAVING;
        loop {
            // Registered before looking: what comes in between is not missed.
            let mut came = pin!(host.book.came.notified());
            came.as_mut().enable();
            if self.inner.stop.is_cancelled() {
                return Err(Error::Closed);
            }
            if let Some(slot) = host.book.take_ready() {
                return Ok(slot);
            }
            if let Some(lease) = host.book.lease() {
                return Host::build(host, lease).await;
            }
            if !host.book.is_one_coming() || timeout_at(deadline, came).await.is_err() {
                return Err(Error::NoCapacity {
                    max: host.config.max_slots,
                });
            }
        }
    }

    /// Takes over the slot of a sandbox that a former server started. `netns` was opened from
    /// `/proc/<pid>/ns/net` of one of its processes.
    pub async fn adopt(&self, index: u32, netns: OwnedFd, internet: bool) -> Result<Slot, Error> {
        let host = Arc::clone(&self.inner.host);
        let not = |why: &str| Error::NotAdoptable {
            index,
            why: why.to_owned(),
        };
        let lease = host
            .book
            .claim(index)
            .ok_or_else(|| not("its link is gone, or another sandbox has it"))?;
        on(&self.inner.host.builder, move || {
            let (address, name) = (host.config.slot_address(index), host.names.slot_link(index));
            enter(netns.as_fd()).doing(|| "entering the sandbox's network namespace".to_owned())?;
            let inside = Netlink::open()
                .doing(|| "opening netlink".to_owned())?
                .link(link::INSIDE_NAME);
            enter(host.home.as_fd()).doing(|| "leaving the sandbox's namespace".to_owned())?;
            // A process id that now belongs to somebody else would bring a strange namespace.
            if inside.is_ok_and(|link| link.mac == link::inside_mac(address)) {
                host.netlink.lock().set_internet(&name, internet)?;
                Ok(host.slot(lease, netns))
            } else {
                Err(Error::NotAdoptable {
                    index,
                    why: "the namespace does not hold the other end of its cable".to_owned(),
                })
            }
        })
        .await
    }

    /// Allows or forbids the internet (and names); running connections feel it at once.
    pub async fn set_internet(&self, slot: &Slot, allowed: bool) -> Result<(), Error> {
        let (host, name) = (Arc::clone(&self.inner.host), slot.link.clone());
        let change = move || host.netlink.lock().set_internet(&name, allowed);
        on(&self.inner.host.builder, change).await
    }

    pub fn stats(&self) -> NetStats {
        self.inner.host.book.stats()
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
        host.book.drain_ready();
        let deadline = Instant::now() + CLOSING;
        while let Some(link) = host.present_link() {
            if host.book.stats().used > 0 || Instant::now() > deadline {
                tracing::warn!(link, "a sandbox still uses the network; its firewall stays");
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Self::reclaim(&self.inner.host.config.instance_tag).await;
    }

    /// Removes what a server of this tag left on the host, cutting off any sandbox it still has.
    pub async fn reclaim(tag: &str) {
        if let Err(error) = reclaim(tag).await {
            tracing::warn!(tag, %error, "the network could not be cleaned up completely");
        }
    }
}

impl Host {
    /// Builds a slot. When the caller stops waiting, the finished slot is dropped and goes.
    async fn build(host: &Arc<Self>, lease: Lease) -> Result<Slot, Error> {
        let this = Arc::clone(host);
        on(&host.builder, move || this.build_here(lease)).await
    }

    /// On the builder thread, which leaves home here and returns.
    fn build_here(&self, lease: Lease) -> Result<Slot, Error> {
        let name = self.names.slot_link(lease.index);
        let (address, gateway) = (self.config.slot_address(lease.index), self.config.gateway());
        let cable = Cable {
            name: &name,
            address,
            gateway,
            mtu: self.mtu,
            internet: true,
        };
        let mut inside = Namespace::create()?;
        inside.plug(cable, self.home.as_fd())?;
        enter(self.home.as_fd()).doing(|| "leaving a new network namespace".to_owned())?;
        self.netlink.lock().bring_up(cable)?;
        inside.wait_for_carrier()?;
        Ok(self.slot(lease, inside.fd))
    }

    fn slot(&self, lease: Lease, netns: OwnedFd) -> Slot {
        Slot {
            netns,
            address: self.config.slot_address(lease.index),
            gateway: self.config.gateway(),
            link: self.names.slot_link(lease.index),
            lease,
        }
    }

    fn link_exists(&self, index: u32) -> bool {
        let name = self.names.slot_link(index);
        let found = rustix::net::netdevice::name_to_index(&self.probe, &name);
        !matches!(found, Err(rustix::io::Errno::NODEV))
    }

    fn present_link(&self) -> Option<String> {
        let present = (0..self.config.max_slots).find(|index| self.link_exists(*index));
        present.map(|index| self.names.slot_link(index))
    }
}

fn rules<'a>(config: &'a NetConfig, names: &'a Names) -> Rules<'a> {
    Rules {
        names,
        range: config.range,
        gateway: config.gateway(),
        open_ranges: &config.open_ranges,
    }
}

/// Runs a change on the builder thread, for a bounded time.
async fn on<T: Send + 'static>(
    builder: &Threads,
    change: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    timeout(CHANGE, builder.run(change))
        .await
        .map_err(|_| Error::TimedOut {
            doing: "changing the network",
            seconds: CHANGE.as_secs(),
        })?
        .doing(|| "changing the network".to_owned())?
}

/// Forwarding, the gateway's link, and which slots exist already.
fn prepare_host(
    mut netlink: Netlink,
    config: &NetConfig,
    names: &Names,
) -> Result<(Netlink, BTreeSet<u32>), Error> {
    let forwarding = std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward");
    if forwarding.is_ok_and(|value| value.trim() != "1") {
        tracing::info!("switching on net.ipv4.ip_forward: sandboxes reach the internet through it");
        namespace::set("ipv4/ip_forward", "1")?;
    }
    netlink.hold_gateway(&names.holder(), config.gateway())?;
    let present = netlink
        .links()?
        .iter()
        .filter_map(|link| names.slot_of(&link.name))
        .collect();
    Ok((netlink, present))
}

async fn reclaim(tag: &str) -> Result<(), Error> {
    let names = Names::new(tag)?;
    let table = names.table();
    let removing = move || {
        let mut netlink = Netlink::open().doing(|| "opening netlink".to_owned())?;
        for link in netlink.links()? {
            if names.is_ours(&link.name) {
                netlink.remove(&link.name)?;
            }
        }
        Ok::<_, Error>(())
    };
    let links = tokio::task::spawn_blocking(removing)
        .await
        .map_err(|error| Error::kernel("removing links", std::io::Error::other(error)));
    // The rules go last, after the last cable they guard.
    links??;
    firewall::remove(&table).await
}
