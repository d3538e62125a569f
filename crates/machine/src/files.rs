//! Where a sandbox's disk, layers and volumes are.

use std::{path::PathBuf, sync::Arc};

use fs_err as fs;
use soulbox_runtime::{Disk, Error, Result};
use soulbox_template::Template;
use soulbox_types::{SandboxId, SandboxSpec, VolumeMount, guest::OverlaySpec};

use crate::{
    Machine,
    blocking::blocking,
    disk::{OVERLAYS, is_attached},
};

impl Machine {
    pub fn folder(&self, id: &SandboxId) -> PathBuf {
        self.config.sandboxes_dir.join(id.as_str())
    }

    pub fn disk(&self, id: &SandboxId) -> PathBuf {
        self.folder(id).join("disk.img")
    }

    /// Two trees of processes on one disk would destroy it.
    pub async fn check_unused(&self, id: &SandboxId, disk: Disk) -> Result<()> {
        let (image, cgroup) = (self.disk(id), self.cgroups.existing(id.as_str()));
        let users = blocking(move || match disk {
            // The slot that was prepared for it has a process, which has no disk yet.
            Disk::Fresh if image.exists() => Ok(Some("an earlier sandbox of the same id")),
            Disk::Existing if cgroup.pids().is_ok_and(|pids| !pids.is_empty()) => {
                Ok(Some("processes that an earlier start left"))
            }
            Disk::Existing if is_attached(&image)? => Ok(Some("a loop device")),
            Disk::Fresh | Disk::Existing => Ok(None),
        })
        .await?;
        users.map_or(Ok(()), |users| {
            Err(Error::InUse {
                what: format!("the disk of sandbox {id}"),
                users: users.to_owned(),
            })
        })
    }

    pub async fn make_disk(&self, spec: &SandboxSpec, disk: Disk) -> Result<()> {
        let (disks, size) = (Arc::clone(&self.disks), spec.limits.disk_mib);
        let folder = self.folder(&spec.id);
        blocking(move || {
            fs::create_dir_all(&folder)
                .map_err(|e| Error::io("could not make the sandbox's folder", e))?;
            match disk {
                Disk::Fresh => disks.create(size, &folder.join("disk.img")),
                Disk::Existing => Ok(()),
            }
        })
        .await
    }

    /// The folder of each volume and where it is mounted inside.
    pub fn volumes(&self, spec: &SandboxSpec) -> Vec<(PathBuf, PathBuf)> {
        let place = |volume: &VolumeMount| {
            let directory = self.config.volumes_dir.join(&volume.volume).join("mnt");
            (directory, PathBuf::from(&volume.path))
        };
        spec.volumes.iter().map(place).collect()
    }

    /// The template's layers, with what is the same in every sandbox of this node above them.
    pub fn overlays(&self, template: &Template) -> Vec<OverlaySpec> {
        let mut overlays = template.overlays.clone();
        overlays.truncate(OVERLAYS);
        if let Some(root) = overlays.iter_mut().find(|o| o.target.as_os_str() == "/") {
            root.lower.insert(0, self.node_layer.clone());
        }
        overlays
    }
}
