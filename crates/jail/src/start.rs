//! From a wish to a running sandbox.

use std::{io, os::fd::AsRawFd, path::PathBuf, sync::Arc};

use fs_err as fs;
use soulbox_cgroup::{Cgroup, CgroupLimits};
use soulbox_net::{EgressPolicy, Slot};
use soulbox_runtime::{Disk, Error, Origin, Result, Started};
use soulbox_template::Template;
use soulbox_types::{
    EnvdConfig, Limits, SandboxSpec, VolumeMount,
    guest::{InitSpec, OverlaySpec},
};

use crate::{
    blocking::blocking,
    disk::OVERLAYS,
    egress::egress,
    jail::{HOSTNAME, Jail},
    launch::launch,
    network::network_error,
    policy::{MASKED, READ_ONLY},
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
        let (slot, cgroup, (), ()) = tokio::try_join!(
            self.acquire_slot(spec),
            self.make_cgroup(spec),
            self.make_disk(spec, origin.disk),
            self.warm_cgroups(),
        )?;
        let init = self.init_spec(spec, &template, origin, &slot, &cgroup);
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder(&spec.id).join("init.log"))
            .map_err(|e| Error::io("could not open the start's log", e))?;
        let launched = launch(&self.config.programs.init, &init, log.into()).await?;
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
        };
        started(&record.to_running()?)?;
        launched.ready().await?;
        Ok(Sandbox {
            process,
            cgroup,
            slot,
            overlays: targets(&template),
        })
    }

    async fn acquire_slot(&self, spec: &SandboxSpec) -> Result<Slot> {
        let slot = self.network.acquire().await.map_err(network_error)?;
        // A slot from the pool is open already.
        let policy = egress(&spec.network)?;
        if policy != EgressPolicy::open() {
            self.network
                .set_policy(&slot, &policy)
                .await
                .map_err(network_error)?;
        }
        Ok(slot)
    }

    async fn make_cgroup(&self, spec: &SandboxSpec) -> Result<Cgroup> {
        let limits = cgroup_limits(&spec.limits);
        let (manager, name) = (self.cgroups.clone(), spec.id.to_string());
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

    async fn make_disk(&self, spec: &SandboxSpec, disk: Disk) -> Result<()> {
        let (disks, size) = (Arc::clone(&self.disks), spec.limits.disk_mib);
        let folder = self.folder(&spec.id);
        blocking(move || {
            fs::create_dir_all(folder.join("root"))
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
            snapshots: origin.snapshots.clone(),
            volumes: self.volumes(spec),
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

pub(crate) fn cgroup_limits(limits: &Limits) -> CgroupLimits {
    CgroupLimits {
        cpu_millis: limits.cpu_millis,
        memory_bytes: limits.memory_bytes(),
        swap_bytes: 0,
        pids: limits.pids,
        io_weight: None,
    }
}

/// Where the template's overlays are mounted.
pub(crate) fn targets(template: &Template) -> Vec<PathBuf> {
    let overlays = template.overlays.iter().take(OVERLAYS);
    overlays.map(|overlay| overlay.target.clone()).collect()
}
