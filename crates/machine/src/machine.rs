//! What one server holds of this machine.

use std::{
    io,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use fs_err as fs;
use soulbox_cgroup::Manager;
use soulbox_net::{ByNameStats, Ipv4Net, NameStats, NetStats, Network};
use soulbox_runtime::{Error, Result};
use soulbox_types::{Limits, SandboxId};

use crate::{
    MachineConfig, blocking::blocking, disk::Disks, fork_server::ForkServer, ids::HostIds,
    instance::Instance, network, node_layer, prepare::keep_ready, prepared::PreparedSlots,
    process::boot_id, slots::cgroup_limits,
};

/// A killed process is gone within milliseconds; writing back dirty pages may take longer.
pub const DEATH_LIMIT: Duration = Duration::from_secs(15);
pub const FREEZE_LIMIT: Duration = Duration::from_secs(10);
pub const HOSTNAME: &str = "e2b.local";
/// For a slot that was being prepared when the server was to stop; on a busy machine that takes
/// seconds.
const PREPARED_GO: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub struct Machine {
    pub(crate) config: MachineConfig,
    instance: Instance,
    boot_id: String,
    pub(crate) cgroups: Manager,
    pub(crate) network: Network,
    pub(crate) ids: Arc<HostIds>,
    pub(crate) disks: Arc<Disks>,
    /// Files that are the same in every sandbox of this node, above the template's layers.
    pub(crate) node_layer: PathBuf,
    /// An empty directory on which each sandbox's root is put together, in its own mount namespace.
    staging: PathBuf,
    pub(crate) prepared: Arc<PreparedSlots>,
    pub(crate) inits: Arc<ForkServer>,
}

impl Machine {
    pub async fn open(config: MachineConfig) -> Result<Arc<Self>> {
        let mut instance = Instance::load_or_create(&config.data_dir, config.network_range)?;
        let cgroups = Manager::open(&instance.cgroup_parent())
            .map_err(|e| Error::io("could not use cgroups", io::Error::other(e)))?;
        let (network, range) = match network::open(&config, &mut instance).await {
            Ok(opened) => opened,
            Err(error) => {
                remove_parent(&cgroups);
                return Err(error);
            }
        };
        let files = match prepare_files(&config, range).await {
            Ok(files) => files,
            Err(error) => {
                vacate(&config, &network, &cgroups).await;
                return Err(error);
            }
        };
        // Most slots are for sandboxes whose ids somebody else chose.
        let most = usize::try_from(config.max_sandboxes / 4).unwrap_or(usize::MAX);
        let prepared = Arc::new(PreparedSlots::new(
            config.pool.min(most),
            cgroup_limits(&Limits::default()),
        ));
        let inits = Arc::new(ForkServer::new(config.programs.init.clone()));
        let machine = Arc::new(Self {
            config,
            instance,
            boot_id: files.boot_id,
            cgroups,
            network,
            ids: Arc::new(HostIds::new()),
            disks: files.disks,
            node_layer: files.node_layer,
            staging: files.staging,
            prepared,
            inits,
        });
        tokio::spawn(keep_ready(Arc::downgrade(&machine)));
        Ok(machine)
    }

    pub fn config(&self) -> &MachineConfig {
        &self.config
    }

    pub fn instance(&self) -> &Instance {
        &self.instance
    }

    /// Of this boot of the machine: a record of another one names nothing.
    pub fn boot_id(&self) -> &str {
        &self.boot_id
    }

    pub fn staging(&self) -> &PathBuf {
        &self.staging
    }

    /// Where the groups of all sandboxes are.
    pub fn cgroups(&self) -> &Manager {
        &self.cgroups
    }

    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Slots that are prepared for the next sandboxes are ready, not used.
    pub fn network_stats(&self) -> NetStats {
        self.prepared.counted_ready(self.network.stats())
    }

    pub fn by_name_stats(&self) -> ByNameStats {
        self.network.by_name()
    }

    pub fn name_stats(&self) -> NameStats {
        self.network.names()
    }

    /// Things that work less well than they could, for the operator.
    pub fn warnings(&self) -> &[String] {
        self.network.warnings()
    }

    /// Removes what this server holds. While there are sandboxes, what they use stays.
    pub async fn close(&self) {
        for slot in self.prepared.close() {
            self.scrap(slot).await;
        }
        let inits = Arc::clone(&self.inits);
        // It always succeeds: a task that fails is a panic, which was logged.
        let _stopped = blocking(move || {
            inits.stop();
            Ok(())
        })
        .await;
        vacate(&self.config, &self.network, &self.cgroups).await;
    }

    /// Removes the groups that earlier runs left and no sandbox in `keep` owns, with everything in
    /// them. From then on slots are prepared.
    pub async fn reclaim(&self, keep: &[SandboxId]) -> Result<()> {
        // Each tier asks; from the first time on there are slots of our own.
        if self.prepared.is_open() {
            return Ok(());
        }
        let manager = self.cgroups.clone();
        let names = blocking(move || {
            manager
                .names()
                .map_err(|e| Error::io("could not list cgroups", io::Error::other(e)))
        })
        .await?;
        for name in names {
            if let Ok(id) = name.parse::<SandboxId>()
                && !keep.contains(&id)
            {
                tracing::info!(sandbox_id = %id, "reclaiming what an earlier run left");
                self.clean_up(&id).await?;
            }
        }
        self.prepared.open();
        Ok(())
    }

    /// Ends every sandbox of an instance that no server runs any more, and removes what the
    /// machine still holds for it.
    pub async fn remove_traces(instance: &Instance) {
        let parent = instance.cgroup_parent();
        let cleaned = blocking(move || {
            let failed = |e| Error::io("could not clean up cgroups", io::Error::other(e));
            let manager = Manager::open(&parent).map_err(failed)?;
            for name in manager.names().map_err(failed)? {
                let group = manager.existing(&name);
                group.kill_all().map_err(failed)?;
                group.remove(DEATH_LIMIT).map_err(failed)?;
            }
            manager.remove_parent().map_err(failed)
        })
        .await;
        if let Err(error) = cleaned {
            tracing::warn!(%error, "some cgroups stay");
        }
        Network::reclaim(&instance.tag).await;
    }
}

struct Files {
    disks: Arc<Disks>,
    node_layer: PathBuf,
    staging: PathBuf,
    boot_id: String,
}

async fn prepare_files(config: &MachineConfig, range: Ipv4Net) -> Result<Files> {
    let disks = Arc::new(Disks::open(config.data_dir.join("disks"))?);
    let node_layer = node_layer::write(&config.data_dir, range)?;
    let staging = config.data_dir.join("staging");
    fs::create_dir_all(&staging).map_err(|e| Error::io("could not make the staging folder", e))?;
    for size in config.disk_sizes.clone() {
        let disks = Arc::clone(&disks);
        blocking(move || disks.blank(size).map(drop)).await?;
    }
    Ok(Files {
        disks,
        node_layer,
        staging,
        boot_id: boot_id().map_err(|e| Error::io("could not read the boot id", e))?,
    })
}

/// Removes what the machine holds for a server, unless there are sandboxes: those of an earlier
/// run may not have been adopted yet, but their groups and folders are there.
async fn vacate(config: &MachineConfig, network: &Network, cgroups: &Manager) {
    let begun = Instant::now();
    loop {
        let names = cgroups.names().unwrap_or_default();
        if names.is_empty() {
            break;
        }
        let is_sandbox = |name: &String| config.sandboxes_dir.join(name).exists();
        if names.iter().any(is_sandbox) || begun.elapsed() > PREPARED_GO {
            tracing::debug!(
                groups = names.len(),
                "the network stays for those who are there"
            );
            return;
        }
        // A slot that was being prepared is on its way out.
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    network.close().await;
    remove_parent(cgroups);
}

/// One that holds sandboxes cannot be removed.
fn remove_parent(cgroups: &Manager) {
    if let Err(error) = cgroups.remove_parent() {
        tracing::debug!(%error, "the cgroup parent stays");
    }
}
