//! From a spec to a running sandbox.

use std::{io, path::PathBuf, sync::Arc};

use fs_err as fs;
use soulbox_cgroup::{Cgroup, CgroupLimits};
use soulbox_net::{EgressPolicy, Slot};
use soulbox_runtime::{Disk, Error, Origin, Refill, Result, Started};
use soulbox_template::Template;
use soulbox_types::{
    EnvdConfig, Limits, Purpose, SandboxSpec, VolumeMount,
    guest::{InitSpec, OverlaySpec},
};

use crate::{
    blocking::blocking,
    disk::{OVERLAYS, wait_until_released},
    egress::egress,
    jail::{HOSTNAME, Jail},
    launch::{Launched, without_a_word},
    network::network_error,
    policy::{MASKED, READ_ONLY},
    prepared::PreparedSlot,
    process::FirstProcess,
    record::Record,
    sandbox::Sandbox,
};

impl Jail {
    pub(crate) async fn start(
        &self,
        spec: &SandboxSpec,
        origin: &Origin,
        started: &Started<'_>,
    ) -> Result<Sandbox> {
        let template = self
            .config
            .templates
            .of(spec)
            .ok_or_else(|| Error::TemplateNotFound(spec.template.clone()))?;
        let (prepared, ()) =
            tokio::try_join!(self.slot_for(spec), self.make_disk(spec, origin.disk),)?;
        let (launched, cgroup, slot) = self.launch(prepared, spec, &template, origin).await?;
        let found = FirstProcess::find(launched.pid, None)
            .map_err(|e| Error::io("could not watch the sandbox", e))?;
        let Some(process) = found else {
            // Its last words say why.
            launched.ready().await?;
            return Err(Error::Start {
                step: "first process".to_owned(),
                message: "it ended at once".to_owned(),
            });
        };
        let record = Record {
            pid: process.pid(),
            start_time: process.start_time(),
            boot_id: self.boot_id.clone(),
            slot: slot.index(),
            disk: Some(launched.disk.clone()),
        };
        started(&record.to_running()?)?;
        launched.ready().await?;
        Ok(Sandbox {
            process,
            cgroup,
            slot,
            disk: record.disk,
            overlays: targets(&template),
        })
    }

    /// An init that waited may be killed at any moment, for want of memory or by hand, and nobody
    /// can look and ask it in one step. Then another one is tried, once.
    async fn launch(
        &self,
        prepared: PreparedSlot,
        spec: &SandboxSpec,
        template: &Template,
        origin: &Origin,
    ) -> Result<(Launched, Cgroup, Slot)> {
        let PreparedSlot {
            id,
            init,
            cgroup,
            limits,
            first_id,
            slot,
        } = prepared;
        let init_spec = self.init_spec(spec, template, origin, first_id, &cgroup);
        if let Some(launched) = init.launch(&init_spec).await? {
            return Ok((launched, cgroup, slot));
        }
        tracing::info!(sandbox_id = %id, "a waiting soulbox-init was killed; trying another one");
        // It may have got as far as to mount the disk.
        self.clean_up(&id).await?;
        let disk = self.folder(&id).join("disk.img");
        blocking(move || wait_until_released(&disk)).await?;
        let PreparedSlot {
            init,
            cgroup,
            first_id,
            slot,
            ..
        } = self.prepare(id, slot, limits).await?;
        let init_spec = self.init_spec(spec, template, origin, first_id, &cgroup);
        let launched = init.launch(&init_spec).await?;
        Ok((launched.ok_or_else(without_a_word)?, cgroup, slot))
    }

    /// The one that was reserved for it, with its spec, or one made now.
    async fn slot_for(&self, spec: &SandboxSpec) -> Result<PreparedSlot> {
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

    async fn make_disk(&self, spec: &SandboxSpec, disk: Disk) -> Result<()> {
        let (disks, size) = (Arc::clone(&self.disks), spec.limits.disk_mib);
        let folder = self.folder(&spec.id);
        blocking(move || {
            fs::create_dir_all(&folder)
                .map_err(|e| Error::io("could not make the sandbox's folder", e))?;
            match disk {
                Disk::Fresh => disks.create(size, &folder.join("disk.img")),
                Disk::Kept => Ok(()),
            }
        })
        .await
    }

    fn init_spec(
        &self,
        spec: &SandboxSpec,
        template: &Template,
        origin: &Origin,
        first_id: u32,
        cgroup: &Cgroup,
    ) -> InitSpec {
        let folder = self.folder(&spec.id);
        let mut env = template.env.clone();
        env.extend(spec.env.clone());
        InitSpec {
            id_base: first_id,
            hostname: HOSTNAME.to_owned(),
            cgroup_view: cgroup.view(),
            disk: folder.join("disk.img"),
            snapshots: origin.snapshots.clone(),
            volumes: self.volumes(spec),
            overlays: self.overlays(template),
            staging: self.staging.clone(),
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

    fn volumes(&self, spec: &SandboxSpec) -> Vec<(PathBuf, PathBuf)> {
        let place = |volume: &VolumeMount| {
            let directory = self.config.volumes_dir.join(&volume.volume).join("mnt");
            (directory, PathBuf::from(&volume.path))
        };
        spec.volumes.iter().map(place).collect()
    }

    fn overlays(&self, template: &Template) -> Vec<OverlaySpec> {
        let mut overlays = template.overlays.clone();
        overlays.truncate(OVERLAYS);
        if let Some(root) = overlays.iter_mut().find(|o| o.target.as_os_str() == "/") {
            root.lower.insert(0, self.node_layer.clone());
        }
        overlays
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

/// Where the template's overlays are mounted.
pub(crate) fn targets(template: &Template) -> Vec<PathBuf> {
    let overlays = template.overlays.iter().take(OVERLAYS);
    overlays.map(|overlay| overlay.target.clone()).collect()
}
