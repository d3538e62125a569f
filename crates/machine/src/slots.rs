//! A slot for a new sandbox: prepared ahead or made now.

use std::{io, time::Instant};

use soulbox_cgroup::{Cgroup, CgroupLimits};
use soulbox_net::{EgressPolicy, Slot};
use soulbox_runtime::{Error, Refill, Result};
use soulbox_types::{Limits, NetworkPolicy, Purpose, SandboxId, SandboxSpec, guest::InitSpec};

use crate::{
    Launched, Machine, blocking::blocking, disk::wait_until_released, egress::egress,
    launch::without_a_word, network::network_error, prepared::PreparedSlot,
};

/// A sandbox whose first process was started, and what it has of the machine.
#[derive(Debug)]
pub struct StartedInit {
    pub launched: Launched,
    pub cgroup: Cgroup,
    pub slot: Slot,
}

impl Machine {
    /// See [`soulbox_runtime::Runtime::reserve`].
    pub fn reserve(&self) -> Option<SandboxId> {
        self.prepared.reserve(Instant::now())
    }

    pub fn release(&self, id: &SandboxId) {
        self.prepared.release(id);
    }

    /// The one that was reserved for it, with its limits and rules, or one made now.
    pub async fn slot_for(&self, spec: &SandboxSpec) -> Result<PreparedSlot> {
        let limits = first_limits(spec);
        let policy = egress(&spec.network)?;
        // Others are made ahead for users: these have their limits from the start.
        let usual = cgroup_limits(&spec.limits);
        let prepared = if let Some(ahead) = self.prepared.take(&spec.id, &usual).await {
            self.refit(ahead, limits).await?
        } else {
            let slot = self.free_slot().await?;
            self.prepare(spec.id.clone(), slot, limits).await?
        };
        // A slot from the pool is open already.
        if policy != EgressPolicy::open() {
            self.network
                .set_policy(&prepared.slot, &policy)
                .await
                .map_err(network_error)?;
        }
        Ok(prepared)
    }

    /// `init_spec` says what its init becomes, by the first of its host ids and its group.
    ///
    /// An init that waited may be killed at any moment, for want of memory or by hand, and nobody
    /// can look and ask it in one step. Then another one is tried, once.
    pub async fn launch(
        &self,
        prepared: PreparedSlot,
        init_spec: impl Fn(u32, &Cgroup) -> InitSpec,
    ) -> Result<StartedInit> {
        let PreparedSlot {
            id,
            init,
            cgroup,
            limits,
            first_id,
            slot,
        } = prepared;
        if let Some(launched) = init.launch(&init_spec(first_id, &cgroup)).await? {
            return Ok(StartedInit {
                launched,
                cgroup,
                slot,
            });
        }
        tracing::info!(sandbox_id = %id, "a waiting soulbox-init was killed; trying another one");
        // It may have got as far as to mount the disk.
        self.clean_up(&id).await?;
        let disk = self.disk(&id);
        blocking(move || wait_until_released(&disk)).await?;
        let PreparedSlot {
            init,
            cgroup,
            first_id,
            slot,
            ..
        } = self.prepare(id, slot, limits).await?;
        let launched = init.launch(&init_spec(first_id, &cgroup)).await?;
        Ok(StartedInit {
            launched: launched.ok_or_else(without_a_word)?,
            cgroup,
            slot,
        })
    }

    /// Changes what the group of a sandbox may use, and gives it the cpu weight of a user's.
    pub async fn set_limits(&self, id: &SandboxId, limits: &Limits) -> Result<()> {
        // One that is being made has its group before it is listed.
        let (cgroup, limits) = (self.cgroups.existing(id.as_str()), cgroup_limits(limits));
        let (user, absent) = (format!("sandbox {id}"), Error::SandboxNotFound(id.clone()));
        blocking(move || match cgroup.set_limits(&limits) {
            Err(error) if error.is_not_found() && !cgroup.exists() => Err(absent),
            Err(soulbox_cgroup::Error::MemoryInUse { used, limit, .. }) => Err(Error::InUse {
                what: format!(
                    "{} MiB of memory, more than the new limit of {} MiB,",
                    used >> 20,
                    limit >> 20
                ),
                users: user,
            }),
            other => {
                other.map_err(|e| Error::io("could not change the limits", io::Error::other(e)))
            }
        })
        .await
    }

    pub async fn set_policy(&self, slot: &Slot, network: &NetworkPolicy) -> Result<()> {
        self.network
            .set_policy(slot, &egress(network)?)
            .await
            .map_err(network_error)
    }

    /// Takes over the slot of a sandbox that a former server started.
    pub async fn adopt_slot(
        &self,
        index: u32,
        netns: std::os::fd::OwnedFd,
        network: &NetworkPolicy,
    ) -> Result<Slot> {
        self.network
            .adopt(index, netns, &egress(network)?)
            .await
            .map_err(network_error)
    }

    /// Its init may have died while it waited, and the limits may be others.
    async fn refit(&self, mut ahead: PreparedSlot, limits: CgroupLimits) -> Result<PreparedSlot> {
        if !ahead.init.is_alive() {
            let PreparedSlot { id, slot, .. } = ahead;
            return self.prepare(id, slot, limits).await;
        }
        if ahead.limits != limits {
            self.set_limits_of(&ahead, limits).await?;
            ahead.limits = limits;
        }
        Ok(ahead)
    }

    /// At the cost of a prepared one that waits, if there is no other.
    async fn free_slot(&self) -> Result<Slot> {
        loop {
            match self.network.acquire().await.map_err(network_error) {
                Err(full @ Error::NoCapacity { .. }) => {
                    let Some(waiting) = self.prepared.give_up_one() else {
                        return Err(full);
                    };
                    self.scrap(waiting).await;
                }
                other => return other,
            }
        }
    }

    async fn set_limits_of(&self, prepared: &PreparedSlot, limits: CgroupLimits) -> Result<()> {
        let (manager, name) = (self.cgroups.clone(), prepared.id.to_string());
        blocking(move || {
            manager
                .create(&name, &limits)
                .map(drop)
                .map_err(|e| Error::io("could not set the limits", io::Error::other(e)))
        })
        .await
    }
}

/// While it is made. One that nobody waits for yields until it has an owner's limits.
fn first_limits(spec: &SandboxSpec) -> CgroupLimits {
    let limits = cgroup_limits(&spec.limits);
    match spec.purpose {
        Purpose::User | Purpose::Build => limits,
        Purpose::Warm => CgroupLimits {
            cpu_millis: limits.cpu_millis.min(Refill::of_this_machine().cpu_millis),
            cpu_weight: Refill::CPU_WEIGHT,
            ..limits
        },
    }
}

pub(crate) fn cgroup_limits(limits: &Limits) -> CgroupLimits {
    CgroupLimits {
        cpu_millis: limits.cpu_millis,
        cpu_weight: CgroupLimits::USUAL_CPU_WEIGHT,
        memory_bytes: limits.memory_bytes(),
        swap_bytes: 0,
        pids: limits.pids,
    }
}
