//! The tier as the node sees it.

use std::{
    collections::HashMap,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use fs_err as fs;
use parking_lot::Mutex;
use soulbox_cgroup::{Cgroup, Manager};
use soulbox_net::{Ipv4Net, NameStats, NetStats, Network};
use soulbox_runtime::{
    AddedLayer, Adopted, Disk, DynStream, Error, Exit, Origin, Result, Running, Runtime, Started,
    Stats,
};
use soulbox_types::{Limits, NetworkPolicy, SandboxId, SandboxSpec, Tier};
use tokio::time::timeout;

use crate::{
    JailConfig,
    blocking::blocking,
    capture,
    disk::{self, Disks},
    egress::egress,
    export,
    fork_server::ForkServer,
    ids::HostIds,
    instance::Instance,
    network::{self, network_error},
    node_layer,
    policy::Policy,
    prepare::keep_ready,
    prepared::PreparedSlots,
    process::{FirstProcess, boot_id},
    record::Record,
    sandbox::Sandbox,
    start::{cgroup_limits, targets},
};

/// A killed process is gone within milliseconds; writing back dirty pages may take longer.
pub(crate) const DEATH_LIMIT: Duration = Duration::from_secs(15);
pub(crate) const FREEZE_LIMIT: Duration = Duration::from_secs(10);
/// For a slot that was being prepared when the server was to stop; on a busy machine that takes
/// seconds.
const PREPARED_GO: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(10);
pub(crate) const HOSTNAME: &str = "e2b.local";

#[derive(Debug)]
pub struct Jail {
    pub(crate) config: JailConfig,
    pub(crate) instance: Instance,
    pub(crate) policy: Policy,
    pub(crate) boot_id: String,
    pub(crate) cgroups: Manager,
    pub(crate) network: Network,
    pub(crate) ids: Arc<HostIds>,
    pub(crate) disks: Arc<Disks>,
    /// Files that are the same in every sandbox of this node, above the template's layers.
    pub(crate) node_layer: PathBuf,
    /// An empty directory on which each sandbox's root is put together, in its own mount namespace.
    pub(crate) staging: PathBuf,
    sandboxes: Mutex<HashMap<SandboxId, Arc<Sandbox>>>,
    pub(crate) prepared: Arc<PreparedSlots>,
    pub(crate) inits: Arc<ForkServer>,
}

impl Jail {
    pub async fn open(config: JailConfig) -> Result<Arc<Self>> {
        let mut instance = Instance::load_or_create(&config.data_dir, config.network_range)?;
        let policy = Policy::load()?;
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
        let jail = Arc::new(Self {
            config,
            instance,
            policy,
            boot_id: files.boot_id,
            cgroups,
            network,
            ids: Arc::new(HostIds::new()),
            disks: files.disks,
            node_layer: files.node_layer,
            staging: files.staging,
            sandboxes: Mutex::default(),
            prepared,
            inits,
        });
        tokio::spawn(keep_ready(Arc::downgrade(&jail)));
        Ok(jail)
    }

    pub fn instance(&self) -> &Instance {
        &self.instance
    }

    /// Where its sandboxes' groups are.
    pub fn cgroups(&self) -> &Manager {
        &self.cgroups
    }

    pub fn network_stats(&self) -> NetStats {
        self.network.stats()
    }

    pub fn name_stats(&self) -> NameStats {
        self.network.names()
    }

    /// Things that work less well than they could, for the operator.
    pub fn warnings(&self) -> &[String] {
        self.network.warnings()
    }

    /// Removes what the machine holds for this server. Only without sandboxes.
    pub async fn close(&self) {
        for slot in self.prepared.close() {
            self.scrap(slot).await;
        }
        let inits = Arc::clone(&self.inits);
        // It always succeeds: a task that fails is a panic, which was told.
        let _stopped = blocking(move || {
            inits.stop();
            Ok(())
        })
        .await;
        if self.sandboxes.lock().is_empty() {
            vacate(&self.config, &self.network, &self.cgroups).await;
        }
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

    fn sandbox(&self, id: &SandboxId) -> Result<Arc<Sandbox>> {
        self.sandboxes
            .lock()
            .get(id)
            .cloned()
            .ok_or_else(|| Error::SandboxNotFound(id.clone()))
    }

    pub(crate) fn folder(&self, id: &SandboxId) -> PathBuf {
        self.config.sandboxes_dir.join(id.as_str())
    }

    /// Two trees of processes on one disk would destroy it.
    async fn check_unused(&self, id: &SandboxId, disk: Disk) -> Result<()> {
        let in_use = |users: &str| Error::InUse {
            what: format!("the disk of sandbox {id}"),
            users: users.to_owned(),
        };
        if self.sandboxes.lock().contains_key(id) {
            return Err(in_use("the sandbox, which runs already"));
        }
        let (image, cgroup) = (
            self.folder(id).join("disk.img"),
            self.cgroups.existing(id.as_str()),
        );
        let users = blocking(move || match disk {
            // The slot that was prepared for it has a process, which has no disk yet.
            Disk::Fresh if image.exists() => Ok(Some("an earlier sandbox of the same id")),
            Disk::Kept if cgroup.pids().is_ok_and(|pids| !pids.is_empty()) => {
                Ok(Some("processes that an earlier start left"))
            }
            Disk::Kept if disk::is_attached(&image)? => Ok(Some("a loop device")),
            Disk::Fresh | Disk::Kept => Ok(None),
        })
        .await?;
        users.map_or(Ok(()), |users| Err(in_use(users)))
    }

    /// Ends every process after `flush`, and returns when nothing has the disk mounted any more.
    async fn stop_with(
        &self,
        id: &SandboxId,
        sandbox: Arc<Sandbox>,
        flush: impl FnOnce(&Sandbox) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        // Frozen, so that nothing is written between the flush and the end.
        blocking(move || {
            let freeze = |e| Error::io("could not freeze the sandbox", io::Error::other(e));
            sandbox.cgroup.freeze(FREEZE_LIMIT).map_err(freeze)?;
            flush(&sandbox).inspect_err(|_| {
                if let Err(error) = sandbox.cgroup.thaw(FREEZE_LIMIT) {
                    tracing::error!(%error, "a sandbox that could not be stopped stays frozen");
                }
            })
        })
        .await?;
        self.destroy(id, None).await?;
        let disk = self.folder(id).join("disk.img");
        blocking(move || disk::wait_until_released(&disk)).await
    }

    /// Ends the first process, and with it everything in its pid namespace.
    async fn end(&self, process: &FirstProcess, cgroup: &Cgroup) -> Result<()> {
        process
            .kill()
            .map_err(|e| Error::io("could not kill the sandbox", e))?;
        // A frozen process does not die (v1).
        let thawing = cgroup.clone();
        if let Err(error) = blocking(move || {
            thawing
                .thaw(FREEZE_LIMIT)
                .map_err(|e| Error::io("could not thaw", io::Error::other(e)))
        })
        .await
        {
            tracing::debug!(%error, "thawing before the end");
        }
        timeout(DEATH_LIMIT, process.exited())
            .await
            .map(drop)
            .map_err(|_| Error::Timeout {
                what: "the sandbox's end",
                limit: DEATH_LIMIT,
            })
    }
}

struct Files {
    disks: Arc<Disks>,
    node_layer: PathBuf,
    staging: PathBuf,
    boot_id: String,
}

async fn prepare_files(config: &JailConfig, range: Ipv4Net) -> Result<Files> {
    let disks = Arc::new(Disks::open(config.data_dir.join("disks"))?);
    let node_layer = node_layer::write(&config.data_dir, range)?;
    let staging = config.data_dir.join("staging");
    fs::create_dir_all(&staging).map_err(|e| Error::io("could not make the staging folder", e))?;
    for template in config.templates.all() {
        let (disks, size) = (Arc::clone(&disks), template.limits.disk_mib);
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
async fn vacate(config: &JailConfig, network: &Network, cgroups: &Manager) {
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

#[async_trait]
impl Runtime for Jail {
    async fn export(&self, id: &SandboxId, target: &Path) -> Result<Vec<AddedLayer>> {
        let sandbox = self.sandbox(id)?;
        let disk = self.folder(id).join("disk.img");
        // Through the host's page cache: the copy is what must be on its disk.
        self.stop_with(id, sandbox.clone(), Sandbox::flush).await?;
        let overlays = sandbox.overlays.clone();
        drop(sandbox);
        export::export(&self.config.programs.init, &disk, overlays, target).await
    }

    async fn set_limits(&self, id: &SandboxId, limits: &Limits) -> Result<()> {
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

    fn tier(&self) -> Tier {
        Tier::Jail
    }

    fn reserve(&self) -> Option<SandboxId> {
        self.prepared.reserve(Instant::now())
    }

    fn release(&self, id: &SandboxId) {
        self.prepared.release(id);
    }

    async fn create(
        &self,
        spec: &SandboxSpec,
        origin: Origin,
        started: &Started<'_>,
    ) -> Result<()> {
        // Before anything that a failure would have to take back: what is there is another's.
        self.check_unused(&spec.id, origin.disk).await?;
        match self.start(spec, &origin, started).await {
            Ok(sandbox) => {
                self.sandboxes
                    .lock()
                    .insert(spec.id.clone(), Arc::new(sandbox));
                Ok(())
            }
            Err(error) => {
                if let Err(clean_up) = self.clean_up(&spec.id).await {
                    tracing::warn!(sandbox_id = %spec.id, error = %clean_up, "clean-up after a failed start");
                }
                Err(error)
            }
        }
    }

    async fn adopt(&self, spec: &SandboxSpec, running: &Running) -> Result<Adopted> {
        let record = Record::from_running(running)?;
        if record.boot_id != self.boot_id {
            self.clean_up(&spec.id).await?;
            return Ok(Adopted::Rebooted);
        }
        let found = FirstProcess::find(record.pid, Some(record.start_time))
            .map_err(|e| Error::io("could not look for the sandbox", e))?;
        let Some(process) = found else {
            self.clean_up(&spec.id).await?;
            return Ok(Adopted::Gone);
        };
        let known = self.sandboxes.lock().get(&spec.id).cloned();
        if known.is_some_and(|known| known.process.is(&process)) {
            // An earlier try went as far as this.
            return Ok(Adopted::Alive);
        }
        let netns: OwnedFd = fs::File::open(format!("/proc/{}/ns/net", record.pid))
            .map_err(|e| Error::io("could not open the sandbox's network", e))?
            .into_parts()
            .0
            .into();
        let slot = self
            .network
            .adopt(record.slot, netns, &egress(&spec.network)?)
            .await
            .map_err(network_error)?;
        let cgroup = self.cgroups.existing(spec.id.as_str());
        let sandbox = Sandbox {
            process,
            cgroup,
            slot,
            disk: record.disk,
            overlays: self
                .config
                .templates
                .of(spec)
                .map(|template| targets(&template))
                .unwrap_or_default(),
        };
        self.sandboxes
            .lock()
            .insert(spec.id.clone(), Arc::new(sandbox));
        Ok(Adopted::Alive)
    }

    async fn dial(&self, id: &SandboxId, port: u16) -> Result<DynStream> {
        let sandbox = self.sandbox(id)?;
        match sandbox.connect(port).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                Err(Error::PortClosed {
                    id: id.clone(),
                    port,
                })
            }
            Err(error) => Err(Error::io(
                format!("could not reach port {port} of {id}"),
                error,
            )),
        }
    }

    async fn pause(&self, id: &SandboxId) -> Result<()> {
        let sandbox = self.sandbox(id)?;
        let disk = self.folder(id).join("disk.img");
        blocking(move || {
            let freeze = |e| Error::io("could not freeze the sandbox", io::Error::other(e));
            sandbox.cgroup.freeze(FREEZE_LIMIT).map_err(freeze)?;
            if let Err(error) = sandbox.sync(&disk) {
                // A pause that is not safe on disk is none: the sandbox goes on as before.
                sandbox.cgroup.thaw(FREEZE_LIMIT).map_err(freeze)?;
                return Err(error);
            }
            // Only a favour to the machine: page cache and, with swap, idle memory.
            if let Err(error) = sandbox.cgroup.reclaim_memory() {
                tracing::debug!(%error, "the memory of a paused sandbox stays");
            }
            Ok(())
        })
        .await
    }

    async fn hold(&self, id: &SandboxId) -> Result<()> {
        let sandbox = self.sandbox(id)?;
        blocking(move || {
            sandbox
                .cgroup
                .freeze(FREEZE_LIMIT)
                .map_err(|e| Error::io("could not freeze the sandbox", io::Error::other(e)))
        })
        .await
    }

    async fn resume(&self, id: &SandboxId) -> Result<()> {
        let sandbox = self.sandbox(id)?;
        blocking(move || {
            sandbox
                .cgroup
                .thaw(FREEZE_LIMIT)
                .map_err(|e| Error::io("could not thaw the sandbox", io::Error::other(e)))
        })
        .await
    }

    async fn set_network(&self, id: &SandboxId, network: &NetworkPolicy) -> Result<()> {
        let sandbox = self.sandbox(id)?;
        let policy = egress(network)?;
        self.network
            .set_policy(&sandbox.slot, &policy)
            .await
            .map_err(network_error)
    }

    async fn stop(&self, id: &SandboxId) -> Result<()> {
        let disk = self.folder(id).join("disk.img");
        let known = self.sandboxes.lock().get(id).cloned();
        if let Some(sandbox) = known.filter(|sandbox| !sandbox.process.has_exited()) {
            let flush = move |sandbox: &Sandbox| sandbox.sync(&disk);
            return self.stop_with(id, sandbox, flush).await;
        }
        // Nothing runs any more, or a start that failed has left something.
        self.destroy(id, None).await?;
        blocking(move || {
            disk::wait_until_released(&disk)?;
            std::fs::File::open(&disk)
                .and_then(|image| image.sync_all())
                .map_err(|e| Error::io("could not write the sandbox's files to disk", e))
        })
        .await
    }

    async fn capture(&self, id: &SandboxId, target: &Path) -> Result<()> {
        let running = self.sandboxes.lock().get(id).cloned();
        let (disk, target) = (self.folder(id).join("disk.img"), target.to_owned());
        blocking(move || capture::capture(running.as_deref(), &disk, &target)).await
    }

    async fn stats(&self, id: &SandboxId) -> Result<Stats> {
        let sandbox = self.sandbox(id)?;
        blocking(move || sandbox.stats()).await
    }

    async fn wait(&self, id: &SandboxId) -> Result<Exit> {
        let process = self.sandbox(id)?.process.clone();
        Ok(process.exited().await)
    }

    async fn destroy(&self, id: &SandboxId, running: Option<&Running>) -> Result<()> {
        let known = self.sandboxes.lock().get(id).cloned();
        if let Some(sandbox) = known {
            self.end(&sandbox.process, &sandbox.cgroup).await?;
        } else if let Some(running) = running {
            let record = Record::from_running(running)?;
            if record.boot_id == self.boot_id
                && let Some(process) = FirstProcess::find(record.pid, Some(record.start_time))
                    .map_err(|e| Error::io("could not look for the sandbox", e))?
            {
                self.end(&process, &self.cgroups.existing(id.as_str()))
                    .await?;
            }
        }
        self.clean_up(id).await?;
        // Last: while it is listed, the slot is not given to another sandbox.
        self.sandboxes.lock().remove(id);
        Ok(())
    }

    async fn put_away(&self, id: &SandboxId, running: Option<&Running>) -> Result<()> {
        // A record that nobody understands is of no use; its group has all of its processes.
        let usable = running.filter(|running| Record::from_running(running).is_ok());
        self.destroy(id, usable).await?;
        let disk = self.folder(id).join("disk.img");
        blocking(move || {
            // With the last process goes the mount, and with that everything is in the image.
            disk::wait_until_released(&disk)?;
            match std::fs::File::open(&disk).and_then(|image| image.sync_all()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(Error::io("could not write the sandbox's disk", error))
                }
                _ => Ok(()),
            }
        })
        .await
    }

    async fn reclaim(&self, keep: &[SandboxId]) -> Result<()> {
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
}
