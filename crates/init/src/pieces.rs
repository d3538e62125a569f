//! Mounts of the host's things, taken while the host can still be seen and attached when it can
//! not: inside, every path belongs to code that may be hostile.

use std::{
    fs::Permissions,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::PermissionsExt,
    },
    path::{Path, PathBuf},
};

use soulbox_sys::idmap;
use soulbox_types::guest::InitSpec;

use crate::error::{Context, Failure};

/// Character devices without state of their own.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Runtimes count cores here.
const TOPOLOGY: [&str; 2] = ["devices/system/cpu", "devices/system/node"];

#[derive(Debug)]
pub(crate) struct Pieces {
    /// By name in `/dev`.
    pub(crate) devices: Vec<(&'static str, OwnedFd)>,
    /// To hide files behind: one copy per file.
    pub(crate) blanks: Vec<OwnedFd>,
    /// A file with the id of this boot: programs take a new one for a restarted machine.
    pub(crate) boot_id: OwnedFd,
    /// By path below `/sys`.
    pub(crate) sys: Vec<(PathBuf, OwnedFd)>,
    /// By path inside.
    pub(crate) volumes: Vec<(PathBuf, OwnedFd)>,
}

pub(crate) fn collect(spec: &InitSpec, user_namespace: &OwnedFd) -> Result<Pieces, Failure> {
    let read_only = idmap::MOUNT_ATTR_RDONLY
        | idmap::MOUNT_ATTR_NOSUID
        | idmap::MOUNT_ATTR_NODEV
        | idmap::MOUNT_ATTR_NOEXEC;
    let device = |name: &str| {
        idmap::restricted_copy(&Path::new("/dev").join(name), idmap::MOUNT_ATTR_NOEXEC)
            .at_with("devices", || name.to_owned())
    };
    let shown = |source: &Path| {
        idmap::restricted_copy(source, read_only)
            .at_with("show read-only", || source.display().to_string())
    };
    let mut sys = Vec::new();
    for name in TOPOLOGY {
        let source = Path::new("/sys").join(name);
        if source.is_dir() {
            sys.push((PathBuf::from(name), shown(&source)?));
        }
    }
    for (source, place) in &spec.cgroup_view {
        sys.push((Path::new("fs/cgroup").join(place), shown(source)?));
    }
    let mut volumes = Vec::new();
    for (source, target) in &spec.volumes {
        let attributes = idmap::MOUNT_ATTR_NODEV | idmap::MOUNT_ATTR_NOSUID;
        let shifted = idmap::shifted_copy(source, user_namespace.as_fd(), attributes)
            .at_with("shift ids of volume", || target.display().to_string())?;
        volumes.push((target.clone(), shifted));
    }
    Ok(Pieces {
        devices: DEVICES
            .iter()
            .map(|name| Ok((*name, device(name)?)))
            .collect::<Result<_, Failure>>()?,
        blanks: spec
            .masked
            .iter()
            .map(|_| device("null"))
            .collect::<Result<_, _>>()?,
        boot_id: boot_id().at("boot id")?,
        sys,
        volumes,
    })
}

/// The kernel makes a fresh id on every read of `uuid`. The file is in the staging directory (the
/// current one) and lives on in its mount.
fn boot_id() -> std::io::Result<OwnedFd> {
    std::fs::copy("/proc/sys/kernel/random/uuid", "boot_id")?;
    std::fs::set_permissions("boot_id", Permissions::from_mode(0o444))?;
    idmap::restricted_copy(Path::new("boot_id"), idmap::MOUNT_ATTR_RDONLY)
}
