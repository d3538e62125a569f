//! The tier as the node sees it.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    os::fd::{AsRawFd, OwnedFd},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use fs_err as fs;
use parking_lot::Mutex;
use soulbox_cgroup::{Cgroup, CgroupLimits, Manager};
use soulbox_net::{Ipv4Net, NetConfig, NetStats, Network, Slot};
use soulbox_runtime::{Adopted, DynStream, Error, Exit, Result, Running, Runtime, Started, Stats};
use soulbox_template::Template;
use soulbox_types::{
    EnvdConfig, SandboxId, SandboxSpec, TemplateId, Tier,
    guest::{InitSpec, OverlaySpec},
};
use tokio::{task::spawn_blocking, time::timeout};

use crate::{
    JailConfig,
    disk::{Disks, OVERLAYS},
    instance::{Instance, SLOTS},
    launch::launch,
    policy::{MASKED, Policy, READ_ONLY},
    process::{FirstProcess, boot_id},
    record::Record,
    sandbox::Sandbox,
};

/// A killed process is gone within milliseconds; writing back dirty pages may take longer.
const DEATH_LIMIT: Duration = Duration::from_secs(15);
const FREEZE_LIMIT: Duration = Duration::from_secs(10);
const HOSTNAME: &str = "e2b.local";

#[derive(Debug)]
pub struct Jail {
    config: JailConfig,
    instance: Instance,
    policy: Policy,
    boot_id: String,
    cgroups: Manager,
    network: Network,
    disks: Arc<Disks>,
    /// Files that are the same in every sandbox of this node, above the template's layers.
    node_layer: PathBuf,
    templates: BTreeMap<TemplateId, Template>,
    sandboxes: Mutex<HashMap<SandboxId, Arc<Sandbox>>>,
}

impl Jail {
    pub async fn open(config: JailConfig) -> Result<Arc<Self>> {
        let instance = Instance::load_or_create(&config.data_dir, config.network_range)?;
        let policy = Policy::load()?;
        let cgroups = Manager::open(&instance.cgroup_parent())
            .map_err(|e| Error::io("could not use cgroups", io::Error::other(e)))?;
        let range: Ipv4Net = instance.range.parse().map_err(|_| {
            Error::io(
                "instance.json has no valid network range",
                io::ErrorKind::InvalidData.into(),
            )
        })?;
        let network = Network::open(NetConfig {
            instance_tag: instance.tag.clone(),
            range,
            max_slots: SLOTS.min(config.max_sandboxes),
            pool: config.pool,
            open_ranges: config.open_ranges.clone(),
            upstream_dns: Vec::new(),
        })
        .await
        .map_err(|e| Error::io("could not set up the network", io::Error::other(e)))?;
        let disks = Arc::new(Disks::open(config.data_dir.join("disks"))?);
        let node_layer = write_node_layer(&config.data_dir, range)?;
        for template in &config.templates {
            let (disks, size) = (Arc::clone(&disks), template.limits.disk_mib);
            blocking(move || disks.blank(size).map(drop)).await?;
        }
        let boot_id = boot_id().map_err(|e| Error::io("could not read the boot id", e))?;
        let templates = config
            .templates
            .iter()
            .map(|t| (t.id.clone(), t.clone()))
            .collect();
        Ok(Arc::new(Self {
            config,
            instance,
            policy,
            boot_id,
            cgroups,
            network,
            disks,
            node_layer,
            templates,
            sandboxes: Mutex::default(),
        }))
    }

    pub fn instance(&self) -> &Instance {
        &self.instance
    }

    pub fn network_stats(&self) -> NetStats {
        self.network.stats()
    }

    /// Things that work less well than they could, for the operator.
    pub fn warnings(&self) -> Vec<String> {
        self.network.warnings()
    }

    /// Removes what the machine holds for this server. Only without sandboxes.
    pub async fn close(&self) {
        if self.sandboxes.lock().is_empty() {
            self.network.close().await;
            if let Err(error) = self.cgroups.remove_parent() {
                tracing::debug!(%error, "the cgroup parent stays");
            }
        }
    }

    fn sandbox(&self, id: &SandboxId) -> Result<Arc<Sandbox>> {
        self.sandboxes
            .lock()
            .get(id)
            .cloned()
            .ok_or_else(|| Error::SandboxNotFound(id.clone()))
    }

    fn folder(&self, id: &SandboxId) -> PathBuf {
        self.config.sandboxes_dir.join(id.as_str())
    }

    async fn start(&self, spec: &SandboxSpec, started: &Started<'_>) -> Result<Sandbox> {
        let template = self
            .templates
            .get(&spec.template)
            .ok_or_else(|| Error::TemplateNotFound(spec.template.clone()))?;
        let (slot, cgroup, ()) = tokio::try_join!(
            self.acquire_slot(spec),
            self.make_cgroup(spec),
            self.make_disk(spec),
        )?;
        let init = self.init_spec(spec, template, &slot, &cgroup);
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder(&spec.id).join("envd.log"))
            .map_err(|e| Error::io("could not open envd's log", e))?;
        let launched = launch(&self.config.programs.init, &init, log.into()).await?;
        let process = FirstProcess::find(launched.pid, None)
            .map_err(|e| Error::io("could not watch the sandbox", e))?
            .ok_or_else(|| Error::Start {
                step: "first process".to_owned(),
                message: "it ended at once".to_owned(),
            })?;
        let record = Record {
            pid: process.pid(),
            start_time: process.start_time(),
            boot_id: self.boot_id.clone(),
            slot: slot.index(),
        };
        started(&record.to_running()?)?;
        launched.ready().await?;
        Ok(Sandbox {
            process,
            cgroup,
            slot,
        })
    }

    async fn acquire_slot(&self, spec: &SandboxSpec) -> Result<Slot> {
        let slot = self.network.acquire().await.map_err(network_error)?;
        if !spec.network.internet() {
            self.network
                .set_internet(&slot, false)
                .await
                .map_err(network_error)?;
        }
        Ok(slot)
    }

    async fn make_cgroup(&self, spec: &SandboxSpec) -> Result<Cgroup> {
        let limits = CgroupLimits {
            cpu_millis: spec.limits.cpu_millis,
            memory_bytes: spec.limits.memory_bytes(),
            swap_bytes: 0,
            pids: spec.limits.pids,
            io_weight: None,
        };
        let (manager, name) = (self.cgroups.clone(), spec.id.to_string());
        blocking(move || {
            manager
                .create(&name, &limits)
                .map_err(|e| Error::io("could not make the cgroup", io::Error::other(e)))
        })
        .await
    }

    async fn make_disk(&self, spec: &SandboxSpec) -> Result<()> {
        let (disks, size) = (Arc::clone(&self.disks), spec.limits.disk_mib);
        let folder = self.folder(&spec.id);
        blocking(move || {
            fs::create_dir_all(folder.join("root"))
                .map_err(|e| Error::io("could not make the sandbox's folder", e))?;
            disks.create(size, &folder.join("disk.img"))
        })
        .await
    }

    fn init_spec(
        &self,
        spec: &SandboxSpec,
        template: &Template,
        slot: &Slot,
        cgroup: &Cgroup,
    ) -> InitSpec {
        let folder = self.folder(&spec.id);
        let mut env = template.env.clone();
        env.extend(spec.env.clone());
        InitSpec {
            network_namespace: format!(
                "/proc/{}/fd/{}",
                std::process::id(),
                slot.netns().as_raw_fd()
            )
            .into(),
            id_base: self.instance.id_base(slot.index()),
            hostname: HOSTNAME.to_owned(),
            cgroup_joins: cgroup.procs_files(),
            cgroup_view: cgroup.view(),
            disk: folder.join("disk.img"),
            overlays: self.overlays(template),
            staging: folder.join("root"),
            shm_bytes: spec.limits.memory_bytes() / 2,
            seccomp: self.policy.seccomp.clone(),
            capabilities: self.policy.capabilities.clone(),
            masked: MASKED.iter().map(PathBuf::from).collect(),
            read_only: READ_ONLY.iter().map(PathBuf::from).collect(),
            envd: self.config.programs.envd.clone(),
            envd_config: EnvdConfig {
                sandbox_id: spec.id.to_string(),
                template_id: spec.template.to_string(),
                access_token: spec.access_token.clone(),
                node_token: spec.node_token.clone(),
                env,
                default_user: template.default_user.clone(),
                default_workdir: template.default_workdir.clone(),
                memory_bytes: spec.limits.memory_bytes(),
                cpu_count: spec.limits.cpu_count(),
                disk_bytes: spec.limits.disk_bytes(),
            },
        }
    }

    fn overlays(&self, template: &Template) -> Vec<OverlaySpec> {
        let mut overlays = template.overlays.clone();
        overlays.truncate(OVERLAYS);
        if let Some(root) = overlays.iter_mut().find(|o| o.target.as_os_str() == "/") {
            root.lower.insert(0, self.node_layer.clone());
        }
        overlays
    }

    async fn clean_up(&self, id: &SandboxId) -> Result<()> {
        let cgroup = self.cgroups.existing(id.as_str());
        blocking(move || {
            let failed = |e| Error::io("could not clean up the cgroup", io::Error::other(e));
            cgroup.kill_all().map_err(failed)?;
            cgroup.remove(DEATH_LIMIT).map_err(failed)
        })
        .await
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

#[async_trait]
impl Runtime for Jail {
    fn tier(&self) -> Tier {
        Tier::Jail
    }

    async fn create(&self, spec: &SandboxSpec, started: &Started<'_>) -> Result<()> {
        match self.start(spec, started).await {
            Ok(sandbox) => {
                self.sandboxes
                    .lock()
                    .insert(spec.id.clone(), Arc::new(sandbox));
                Ok(())
            }
            Err(error) => {
                if let Err(clean_up) = self.clean_up(&spec.id).await {
                    tracing::warn!(sandbox = %spec.id, error = %clean_up, "clean-up after a failed start");
                }
                Err(error)
            }
        }
    }

    async fn adopt(&self, spec: &SandboxSpec, running: &Running) -> Result<Adopted> {
        let record = Record::from_running(running)?;
        let found = if record.boot_id == self.boot_id {
            FirstProcess::find(record.pid, Some(record.start_time))
                .map_err(|e| Error::io("could not look for the sandbox", e))?
        } else {
            None
        };
        let Some(process) = found else {
            self.clean_up(&spec.id).await?;
            return Ok(Adopted::Gone);
        };
        let netns: OwnedFd = fs::File::open(format!("/proc/{}/ns/net", record.pid))
            .map_err(|e| Error::io("could not open the sandbox's network", e))?
            .into_parts()
            .0
            .into();
        let slot = self
            .network
            .adopt(record.slot, netns, spec.network.internet())
            .await
            .map_err(network_error)?;
        let cgroup = self.cgroups.existing(spec.id.as_str());
        let sandbox = Sandbox {
            process,
            cgroup,
            slot,
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
                tracing::info!(sandbox = %id, "reclaiming what an earlier run left");
                self.clean_up(&id).await?;
            }
        }
        Ok(())
    }
}

/// `/etc` files that depend on the node, not on the template or the sandbox.
fn write_node_layer(data_dir: &std::path::Path, range: Ipv4Net) -> Result<PathBuf> {
    let failed = |e| Error::io("could not write the node's layer", e);
    let layer = data_dir.join("layers/node");
    let etc = layer.join("etc");
    fs::create_dir_all(&etc).map_err(failed)?;
    let gateway = range
        .nth(1)
        .ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
    let resolver = format!("nameserver {gateway}\n");
    let hosts = format!("127.0.0.1 localhost {HOSTNAME}\n::1 localhost ip6-localhost\n");
    for (name, text) in [
        ("resolv.conf", resolver),
        ("hosts", hosts),
        ("hostname", format!("{HOSTNAME}\n")),
    ] {
        // Sandboxes that run have the old file open as a lower layer: replace, never rewrite.
        let path = etc.join(name);
        if fs::read_to_string(&path).is_ok_and(|known| known == text) {
            continue;
        }
        let new = layer.join(format!("{name}.new"));
        fs::write(&new, text).map_err(failed)?;
        fs::rename(&new, &path).map_err(failed)?;
    }
    use std::os::unix::fs::PermissionsExt;
    for folder in [&layer, &etc] {
        fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).map_err(failed)?;
    }
    Ok(layer)
}

fn network_error(error: soulbox_net::Error) -> Error {
    match error {
        soulbox_net::Error::NoCapacity { .. } => Error::NoCapacity {
            what: "all network slots of this machine are in use".to_owned(),
            retry_after: Duration::from_secs(1),
        },
        other => Error::io("network", io::Error::other(other)),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::io(
            "a task of the jail failed",
            io::Error::other(error),
        )),
    }
}
