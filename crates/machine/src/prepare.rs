//! Preparing slots, and keeping some ready.

use std::{
    io,
    os::fd::AsRawFd,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use soulbox_cgroup::{Cgroup, CgroupLimits};
use soulbox_net::Slot;
use soulbox_runtime::{Error, Result};
use soulbox_types::{SandboxId, guest::PreparedSpec};

use crate::{
    Machine,
    blocking::blocking,
    launch::{Parked, park},
    machine::DEATH_LIMIT,
    network::network_error,
    prepared::PreparedSlot,
};

/// Those that died are replaced, and what failed is tried again.
const TICK: Duration = Duration::from_secs(5);
/// A create may be under way right now; its user goes first.
const GIVE_WAY: Duration = Duration::from_millis(20);

/// Keeps slots prepared until the machine is closed or gone.
pub(crate) async fn keep_ready(machine: Weak<Machine>) {
    loop {
        let Some(here) = machine.upgrade() else {
            return;
        };
        if here.prepared.is_closed() {
            return;
        }
        for slot in here.prepared.unwanted(Instant::now()) {
            here.scrap(slot).await;
        }
        let more = here.make_one_ready().await;
        if more {
            continue;
        }
        let prepared = Arc::clone(&here.prepared);
        drop(here);
        tokio::select! {
            () = prepared.changed.notified() => tokio::time::sleep(GIVE_WAY).await,
            () = tokio::time::sleep(TICK) => {}
        }
    }
}

impl Machine {
    /// `false`: enough are ready, or no more can be made now.
    async fn make_one_ready(&self) -> bool {
        let Some(limits) = self.prepared.begin() else {
            return false;
        };
        let made = match self.network.acquire().await.map_err(network_error) {
            Ok(slot) => self.prepare(SandboxId::random(), slot, limits).await,
            Err(error) => Err(error),
        };
        let made = made.inspect_err(|error| tracing::debug!(%error, "no slot was prepared"));
        let is_made = made.is_ok();
        if let Some(unwanted) = self.prepared.made(made.ok()) {
            self.scrap(unwanted).await;
        }
        is_made
    }

    /// On error nothing is left.
    pub(crate) async fn prepare(
        &self,
        id: SandboxId,
        slot: Slot,
        limits: CgroupLimits,
    ) -> Result<PreparedSlot> {
        let made = async {
            let (cgroup, ()) =
                tokio::try_join!(self.make_cgroup(&id, &limits), self.warm_cgroups())?;
            let first_id = self.first_id(&slot).await?;
            let init = self.park(&slot, first_id, &cgroup).await?;
            Ok((cgroup, first_id, init))
        };
        match made.await {
            Ok((cgroup, first_id, init)) => Ok(PreparedSlot {
                id,
                init,
                cgroup,
                limits,
                first_id,
                slot,
            }),
            Err(error) => {
                if let Err(clean_up) = self.clean_up(&id).await {
                    tracing::warn!(sandbox_id = %id, error = %clean_up, "clean-up after a failed start");
                }
                Err(error)
            }
        }
    }

    async fn first_id(&self, slot: &Slot) -> Result<u32> {
        let (ids, network, slot) = (Arc::clone(&self.ids), self.network.clone(), slot.index());
        blocking(move || ids.first_id(slot, |other| network.is_free(other))).await
    }

    async fn park(&self, slot: &Slot, first_id: u32, cgroup: &Cgroup) -> Result<Parked> {
        let spec = PreparedSpec {
            network_namespace: format!(
                "/proc/{}/fd/{}",
                std::process::id(),
                slot.netns().as_raw_fd()
            )
            .into(),
            id_base: first_id,
            cgroup_joins: cgroup.procs_files(),
        };
        park(&self.inits, &spec).await
    }

    /// Removes a prepared slot that nobody will use.
    pub(crate) async fn scrap(&self, prepared: PreparedSlot) {
        let PreparedSlot { id, init, slot, .. } = prepared;
        init.leave().await;
        if let Err(error) = self.clean_up(&id).await {
            tracing::warn!(%error, "the cgroup of an unused slot stays; the next start removes it");
        }
        drop(slot);
        self.prepared.removed(&id);
    }

    async fn make_cgroup(&self, id: &SandboxId, limits: &CgroupLimits) -> Result<Cgroup> {
        let (manager, name, limits) = (self.cgroups.clone(), id.to_string(), *limits);
        blocking(move || {
            manager
                .create(&name, &limits)
                .map_err(|e| Error::io("could not make the cgroup", io::Error::other(e)))
        })
        .await
    }

    /// The first join after a quiet moment waits for the kernel; here it waits beside other work.
    async fn warm_cgroups(&self) -> Result<()> {
        let manager = self.cgroups.clone();
        blocking(move || {
            manager.warm_up();
            Ok(())
        })
        .await
    }

    /// Ends what runs in a sandbox's group and removes it. Fine when there is none.
    pub async fn clean_up(&self, id: &SandboxId) -> Result<()> {
        let cgroup = self.cgroups.existing(id.as_str());
        blocking(move || {
            let failed = |e| Error::io("could not clean up the cgroup", io::Error::other(e));
            cgroup.kill_all().map_err(failed)?;
            cgroup.remove(DEATH_LIMIT).map_err(failed)
        })
        .await
    }
}
