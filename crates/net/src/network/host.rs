//! The host's side of the network: set up once, then slots are built on it.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::timeout;

use super::policies::Policies;
use super::sweep;
use crate::by_name::{DomainRules, Gate, GatePorts};
use crate::claim_lock::ClaimLock;
use crate::dns::Forwarder;
use crate::error::Doing;
use crate::firewall::{self, Rules};
use crate::flows::{Flows, ScanResult};
use crate::link::{self, Access, VethPair};
use crate::names::Names;
use crate::namespace::{self, Namespace};
use crate::netlink::Netlink;
use crate::slot::{Lease, SlotTable};
use crate::threads::{Threads, current_namespace, enter};
use crate::{EgressPolicy, Error, NetConfig, Slot, config};

/// A change in the kernel takes milliseconds; under a storm of them, still far less than this.
const CHANGE: Duration = Duration::from_secs(10);
/// The kernel may be busy for long with what a killed server left, a thousand namespaces at a time;
/// a server that starts has nothing better to do than to wait.
pub(super) const OPENING: Duration = Duration::from_secs(45);

#[derive(Debug)]
pub(super) struct Host {
    pub(super) config: NetConfig,
    pub(super) names: Names,
    pub(super) slot_table: Arc<SlotTable>,
    pub(super) warnings: Vec<String>,
    mtu: u32,
    ports: Ports,
    pub(super) policies: tokio::sync::Mutex<Policies>,
    /// Says the same as the policies, for the gate and the name server.
    pub(super) domain_rules: Arc<DomainRules>,
    home: OwnedFd,
    /// Asks which links exist, without waiting for changes that are being made.
    probe: Arc<Mutex<Netlink>>,
    /// Locked only on the one builder thread, so nobody waits for it.
    netlink: Arc<Mutex<Netlink>>,
    builder: Threads,
}

impl Host {
    /// The gateway, the name server's sockets on it, the rules, and only then forwarding.
    pub(super) async fn open(config: NetConfig) -> Result<(Self, Forwarder, Gate), Error> {
        let names = config.check()?;
        let doing = || "opening the host's network namespace".to_owned();
        let builder = Threads::new("sbx-net", 1).doing(doing)?;
        let home = current_namespace().doing(doing)?;
        let probe = Arc::new(Mutex::new(Netlink::open().doing(doing)?));
        let netlink = Arc::new(Mutex::new(Netlink::open().doing(doing)?));

        let mtu = {
            let (netlink, config, names) = (Arc::clone(&netlink), config.clone(), names.clone());
            within(OPENING, &builder, move || {
                claim_gateway(&mut netlink.lock(), &config, &names)
            })
            .await?
        };
        sweep::remove_orphans(&builder, &netlink).await;
        let domain_rules = Arc::<DomainRules>::default();
        let forwarder = Forwarder::bind(&config, Arc::clone(&domain_rules)).await?;
        let gate = Gate::bind(&config, Arc::clone(&domain_rules), forwarder.resolver()).await?;
        let ports = Ports {
            forwarding: forwarder.port(),
            refusing: forwarder.refusing_port(),
            gate: gate.ports(),
        };
        // Without policies: sandboxes that have one wait until they are adopted.
        let policies = Policies::new();
        firewall::apply(&rules(&config, &names, ports, &policies)).await?;
        let present = {
            let (netlink, names) = (Arc::clone(&netlink), names.clone());
            within(OPENING, &builder, move || {
                start_forwarding(&mut netlink.lock(), &names)
            })
            .await?
        };
        let warnings = firewall::warnings(&names, config.gateway()).await;
        let slot_table = Arc::new(SlotTable::new(config.max_slots, present));
        let host = Self {
            config,
            names,
            slot_table,
            warnings,
            mtu,
            ports,
            policies: tokio::sync::Mutex::new(policies),
            domain_rules,
            home,
            probe,
            netlink,
            builder,
        };
        Ok((host, forwarder, gate))
    }

    pub(super) fn rules<'a>(&'a self, policies: &'a Policies) -> Rules<'a> {
        rules(&self.config, &self.names, self.ports, policies)
    }

    /// Builds a slot. When the caller stops waiting, the finished slot is dropped and goes.
    pub(super) async fn build(self: &Arc<Self>, lease: Lease) -> Result<Slot, Error> {
        let this = Arc::clone(self);
        on(&self.builder, move || this.build_here(lease)).await
    }

    /// On the builder thread, which leaves home here and returns.
    fn build_here(&self, lease: Lease) -> Result<Slot, Error> {
        let name = self.names.slot_link(lease.index);
        let veth = VethPair {
            name: &name,
            address: self.config.slot_address(lease.index),
            gateway: self.config.gateway(),
            mtu: self.mtu,
            access: Access::Open,
        };
        let mut inside = Namespace::create()?;
        inside.attach(veth, self.home.as_fd())?;
        enter(self.home.as_fd()).doing(|| "leaving a new network namespace".to_owned())?;
        self.netlink.lock().bring_up(veth)?;
        inside.wait_for_carrier()?;
        Ok(self.slot(lease, inside.fd))
    }

    /// Takes over a running sandbox's slot.
    pub(super) async fn adopt(
        self: &Arc<Self>,
        lease: Lease,
        netns: OwnedFd,
        policy: &EgressPolicy,
    ) -> Result<Slot, Error> {
        let this = Arc::clone(self);
        let slot = on(&self.builder, move || this.adopt_here(lease, netns)).await?;
        self.set_policy(slot.index(), policy).await?;
        Ok(slot)
    }

    fn adopt_here(&self, lease: Lease, netns: OwnedFd) -> Result<Slot, Error> {
        enter(netns.as_fd()).doing(|| "entering the sandbox's network namespace".to_owned())?;
        let inside = Netlink::open()
            .doing(|| "opening netlink".to_owned())?
            .link(link::INSIDE_NAME);
        enter(self.home.as_fd()).doing(|| "leaving the sandbox's namespace".to_owned())?;
        // A process id that now belongs to somebody else would bring a strange namespace.
        let expected = link::inside_mac(self.config.slot_address(lease.index));
        if !inside.is_ok_and(|link| link.mac == expected) {
            return Err(Error::NotAdoptable {
                index: lease.index,
                why: "the namespace does not hold the other end of its veth pair".to_owned(),
            });
        }
        Ok(self.slot(lease, netns))
    }

    pub(super) async fn set_access(
        self: &Arc<Self>,
        index: u32,
        access: Access,
    ) -> Result<(), Error> {
        let (this, link) = (Arc::clone(self), self.names.slot_link(index));
        on(&self.builder, move || {
            this.netlink.lock().set_access(&link, access)
        })
        .await
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

    /// Those whose links are gone. By netlink: for a name that is not there, the older call makes
    /// the kernel look for a module of that name, which takes a modprobe and milliseconds.
    pub(super) async fn gone(&self, slots: Vec<u32>) -> Result<Vec<u32>, Error> {
        let names = self.names.clone();
        self.ask(move |netlink| {
            let mut gone = Vec::new();
            for index in slots {
                if !netlink.has_link(&names.slot_link(index))? {
                    gone.push(index);
                }
            }
            Ok(gone)
        })
        .await
    }

    /// Takes what slots that left have in the kernel's table of connections: it would be counted to
    /// whoever has their addresses next, and fill the table of the whole machine.
    pub(super) async fn forget_flows(&self, slots: &[u32]) -> Result<usize, Error> {
        let gone: BTreeSet<_> = slots
            .iter()
            .map(|index| self.config.slot_address(*index))
            .collect();
        on_flows(move |flows| {
            let found = match gone.first() {
                Some(only) if gone.len() == 1 => flows.list_of(*only)?,
                _ => flows.list(|source| gone.contains(&source))?,
            };
            flows.delete(&found)
        })
        .await
    }

    /// The same for all slots.
    pub(super) async fn forget_all_flows(&self) -> Result<usize, Error> {
        let range = self.config.range;
        on_flows(move |flows| {
            let found = flows.list(|source| range.contains(source))?;
            flows.delete(&found)
        })
        .await
    }

    /// Lets all sandboxes together keep so many connections.
    pub(super) async fn cut_flows(&self, budget: usize) -> Result<ScanResult, Error> {
        let range = self.config.range;
        on_flows(move |flows| flows.cut(|source| range.contains(source), budget)).await
    }

    /// A slot's link that is on the host.
    pub(super) async fn present_link(&self) -> Option<String> {
        let names = self.names.clone();
        let links = self.ask(Netlink::links).await;
        let links = links.inspect_err(|error| tracing::warn!(%error, "links cannot be listed"));
        let mut links = links.ok()?.into_iter().map(|link| link.name);
        links.find(|name| names.slot_of(name).is_some())
    }

    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Netlink) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let probe = Arc::clone(&self.probe);
        tokio::task::spawn_blocking(move || question(&mut probe.lock()))
            .await
            .map_err(|error| Error::kernel("asking for links", std::io::Error::other(error)))?
    }
}

/// A socket for each time: an answer that came too late would be taken for the next one's.
async fn on_flows<T: Send + 'static>(
    work: impl FnOnce(&mut Flows) -> std::io::Result<T> + Send + 'static,
) -> Result<T, Error> {
    let doing = || "changing the table of connections".to_owned();
    tokio::task::spawn_blocking(move || work(&mut Flows::open()?))
        .await
        .map_err(|error| Error::kernel(doing(), std::io::Error::other(error)))?
        .doing(doing)
}

/// Of the gateway.
#[derive(Debug, Clone, Copy)]
struct Ports {
    /// Where questions for names arrive.
    forwarding: u16,
    /// Those of sandboxes that may not ask.
    refusing: u16,
    gate: GatePorts,
}

fn rules<'a>(
    config: &'a NetConfig,
    names: &'a Names,
    ports: Ports,
    policies: &'a Policies,
) -> Rules<'a> {
    Rules {
        names,
        range: config.range,
        gateway: config.gateway(),
        dns_port: ports.forwarding,
        refusing_port: ports.refusing,
        gate: ports.gate,
        open_ranges: &config.open_ranges,
        policies: policies
            .iter()
            .map(|(index, blocks)| (config.slot_address(*index), blocks))
            .collect(),
    }
}

/// Makes the gateway's link; the size of packets towards the internet comes back.
fn claim_gateway(netlink: &mut Netlink, config: &NetConfig, names: &Names) -> Result<u32, Error> {
    let _claim_lock = ClaimLock::acquire()?;
    config::check_unused(netlink, names, config.range)?;
    netlink.hold_gateway(&names.holder(), config.gateway())?;
    netlink.uplink_mtu()
}

/// The host becomes a router for sandboxes; the slots that exist already come back.
fn start_forwarding(netlink: &mut Netlink, names: &Names) -> Result<BTreeSet<u32>, Error> {
    let forwarding = std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward");
    if forwarding.is_ok_and(|value| value.trim() != "1") {
        tracing::info!("switching on net.ipv4.ip_forward: sandboxes reach the internet through it");
        namespace::set("ipv4/ip_forward", "1")?;
    }
    Ok(netlink
        .links()?
        .iter()
        .filter_map(|link| names.slot_of(&link.name))
        .collect())
}

/// Runs a change on the builder thread, for a bounded time.
async fn on<T: Send + 'static>(
    builder: &Threads,
    change: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    within(CHANGE, builder, change).await
}

pub(super) async fn within<T: Send + 'static>(
    limit: Duration,
    builder: &Threads,
    change: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    timeout(limit, builder.run(change))
        .await
        .map_err(|_| Error::TimedOut {
            doing: "changing the network",
            seconds: limit.as_secs(),
        })?
        .doing(|| "changing the network".to_owned())?
}
