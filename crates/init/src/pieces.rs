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

use rustix::{
    fs::{CWD, FileType, Mode, makedev, mknodat},
    io::Errno,
    mount::MountAttrFlags,
};
use soulbox_sys::idmap;
use soulbox_types::guest::InitSpec;

use crate::{
    error::{Context, Failure},
    mounts::{attach, new_filesystem},
};

/// Character devices without state of their own, by their numbers.
const DEVICES: [(&str, u32, u32); 6] = [
    NULL,
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];
const NULL: (&str, u32, u32) = ("null", 1, 3);
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
    let device = |path: &Path| {
        idmap::restricted_copy(path, idmap::MOUNT_ATTR_NOEXEC)
            .at_with("devices", || path.display().to_string())
    };
    let shown = |source: &Path| {
        idmap::restricted_copy(source, read_only)
            .at_with("show read-only", || source.display().to_string())
    };
    let mut devices = Vec::new();
    for node in DEVICES {
        let path = own_node(node).at_with("devices", || node.0.to_owned())?;
        devices.push((node.0, device(&path)?));
    }
    let null = own_node(NULL).at("devices")?;
    let mut sys = Vec::new();
    let own_sys = own_sys().at("/sys")?;
    for name in TOPOLOGY {
        let source = own_sys.join(name);
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
        devices,
        blanks: spec
            .masked
            .iter()
            .map(|_| device(&null))
            .collect::<Result<_, _>>()?,
        boot_id: boot_id().at("boot id")?,
        sys,
        volumes,
    })
}

/// A device in the staging directory (the current one), which lives on in its mounts. The host's
/// own would be one file for all: whoever locks or watches it does so for every sandbox.
///
/// Where a container's rules forbid new nodes, the host's must do; the doctor says so.
fn own_node((name, major, minor): (&str, u32, u32)) -> std::io::Result<PathBuf> {
    let path = PathBuf::from(format!("dev-{name}"));
    // Not to be changed by the umask under which the server was started.
    let (mode, open) = (Mode::empty(), Permissions::from_mode(0o666));
    let number = makedev(major, minor);
    match mknodat(CWD, &path, FileType::CharacterDevice, mode, number) {
        Ok(()) => std::fs::set_permissions(&path, open)?,
        Err(Errno::EXIST) => {}
        Err(Errno::PERM | Errno::ACCESS) => return Ok(Path::new("/dev").join(name)),
        Err(error) => return Err(error.into()),
    }
    Ok(path)
}

/// A sysfs of the sandbox's network namespace, whose files are nobody else's; in the staging
/// directory, as copies can be taken of what is attached only. Where it may not be mounted, the
/// host's.
fn own_sys() -> std::io::Result<PathBuf> {
    let Ok(mounted) = new_filesystem("sysfs", &[], MountAttrFlags::MOUNT_ATTR_RDONLY) else {
        return Ok(PathBuf::from("/sys"));
    };
    let path = PathBuf::from("sys");
    std::fs::create_dir(&path)?;
    attach(&mounted, &path)?;
    Ok(path)
}

/// The kernel makes a fresh id on every read of `uuid`. The file is in the staging directory (the
/// current one) and lives on in its mount.
fn boot_id() -> std::io::Result<OwnedFd> {
    std::fs::copy("/proc/sys/kernel/random/uuid", "boot_id")?;
    std::fs::set_permissions("boot_id", Permissions::from_mode(0o444))?;
    idmap::restricted_copy(Path::new("boot_id"), idmap::MOUNT_ATTR_RDONLY)
}
