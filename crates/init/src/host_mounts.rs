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

/// Mounts, each with its place.
type Placed<P> = Vec<(P, OwnedFd)>;

/// Most are directories of the staging file system, each with the attributes of its own mount.
/// File systems of their own would cost the kernel some 20 KiB each in every sandbox among a
/// thousand, and time in every end of one (docs/scale.md).
#[derive(Debug)]
pub(crate) struct HostMounts {
    /// `/dev` with its nodes.
    pub(crate) dev: OwnedFd,
    /// Nodes that could not be made there, by name.
    pub(crate) devices: Placed<&'static str>,
    /// To hide files behind.
    pub(crate) null: OwnedFd,
    /// To hide directories behind.
    pub(crate) empty: OwnedFd,
    /// A file with the id of this boot: programs take a new one for a restarted machine.
    pub(crate) boot_id: OwnedFd,
    /// `/dev/shm`.
    pub(crate) shm: OwnedFd,
    /// `/run`.
    pub(crate) run: OwnedFd,
    /// `/sys`, with the places for what is below it.
    pub(crate) sys: OwnedFd,
    /// By path below `/sys`.
    pub(crate) shown: Placed<PathBuf>,
    /// By path inside.
    pub(crate) volumes: Placed<PathBuf>,
}

const WRITABLE: u64 = idmap::MOUNT_ATTR_NOSUID | idmap::MOUNT_ATTR_NODEV;
const CLOSED: u64 = WRITABLE | idmap::MOUNT_ATTR_NOEXEC;
const SHOWN: u64 = CLOSED | idmap::MOUNT_ATTR_RDONLY;

pub(crate) fn collect(spec: &InitSpec, user_namespace: &OwnedFd) -> Result<HostMounts, Failure> {
    let (dev, devices) = dev(spec.id_base)?;
    let null = node(NULL, Path::new("null")).at("devices")?;
    let (sys, shown) = sys(spec)?;
    let mut volumes = Vec::new();
    for (source, target) in &spec.volumes {
        let shifted = idmap::shifted_copy(source, user_namespace.as_fd(), WRITABLE)
            .at_with("shift ids of volume", || target.display().to_string())?;
        volumes.push((target.clone(), shifted));
    }
    Ok(HostMounts {
        dev,
        devices,
        null: device(&null).at("devices")?,
        empty: directory("empty", Some(spec.id_base), spec.id_base, 0o555)
            .and_then(|path| idmap::restricted_copy(path, SHOWN))
            .at("/proc")?,
        boot_id: boot_id().at("boot id")?,
        shm: directory("shm", Some(spec.id_base), spec.id_base, 0o1777)
            .and_then(|path| idmap::restricted_copy(path, CLOSED))
            .at("/dev/shm")?,
        run: directory("run", Some(spec.id_base), spec.id_base, 0o755)
            .and_then(|path| idmap::restricted_copy(path, WRITABLE))
            .at("/run")?,
        sys,
        shown,
        volumes,
    })
}

/// A directory of the staging file system (the current one), which lives on in its mounts. Without
/// an owner it is the host's, who has no name inside; its group is the sandbox's root.
fn directory(name: &str, owner: Option<u32>, group: u32, mode: u32) -> std::io::Result<&Path> {
    let path = Path::new(name);
    std::fs::create_dir(path)?;
    std::os::unix::fs::chown(path, owner, Some(group))?;
    // Not to be changed by the umask under which the server was started.
    std::fs::set_permissions(path, Permissions::from_mode(mode))?;
    Ok(path)
}

/// `/dev`, and nodes of the host's that are to be attached there.
fn dev(id_base: u32) -> Result<(OwnedFd, Placed<&'static str>), Failure> {
    // The sandbox's root may add to it, but not take away what is the host's: nobody inside could
    // make a device again.
    let folder = directory("dev", None, id_base, 0o1775).at("/dev")?;
    let mut of_the_host = Vec::new();
    for (name, major, minor) in DEVICES {
        let own = folder.join(name);
        let named = || name.to_owned();
        let path = node((name, major, minor), &own).at_with("devices", named)?;
        if path != own {
            std::fs::File::create(&own).at_with("devices", named)?;
            of_the_host.push((name, device(&path).at_with("devices", named)?));
        }
    }
    // Devices must work here and only here: every other mount is nodev.
    let attributes = idmap::MOUNT_ATTR_NOSUID | idmap::MOUNT_ATTR_NOEXEC;
    let dev = idmap::restricted_copy(folder, attributes).at("/dev")?;
    Ok((dev, of_the_host))
}

fn device(path: &Path) -> std::io::Result<OwnedFd> {
    idmap::restricted_copy(path, idmap::MOUNT_ATTR_NOEXEC)
}

/// A tiny `/sys`: cpu topology, and the sandbox's own cgroup.
fn sys(spec: &InitSpec) -> Result<(OwnedFd, Placed<PathBuf>), Failure> {
    let folder = directory("sys", Some(spec.id_base), spec.id_base, 0o755).at("/sys")?;
    let own_sys = own_sys().at("/sys")?;
    let topology = TOPOLOGY.map(|name| (own_sys.join(name), PathBuf::from(name)));
    let topology = topology.into_iter().filter(|(source, _)| source.is_dir());
    let groups = spec.cgroup_view.iter();
    let groups = groups.map(|(source, place)| (source.clone(), Path::new("fs/cgroup").join(place)));
    let mut shown = Vec::new();
    for (source, place) in topology.chain(groups) {
        std::fs::create_dir_all(folder.join(&place)).at("/sys")?;
        let copy = idmap::restricted_copy(&source, SHOWN)
            .at_with("show read-only", || source.display().to_string())?;
        shown.push((place, copy));
    }
    let sys = idmap::restricted_copy(folder, SHOWN).at("/sys")?;
    Ok((sys, shown))
}

/// A device in the staging file system. The host's own would be one file for all: whoever locks or
/// watches it does so for every sandbox.
///
/// Where a container's rules forbid new nodes, the host's must do; the doctor says so.
fn node((name, major, minor): (&str, u32, u32), path: &Path) -> std::io::Result<PathBuf> {
    // Not to be changed by the umask under which the server was started.
    let (mode, open) = (Mode::empty(), Permissions::from_mode(0o666));
    let number = makedev(major, minor);
    match mknodat(CWD, path, FileType::CharacterDevice, mode, number) {
        Ok(()) => std::fs::set_permissions(path, open)?,
        Err(Errno::PERM | Errno::ACCESS) => return Ok(Path::new("/dev").join(name)),
        Err(error) => return Err(error.into()),
    }
    Ok(path.to_owned())
}

/// A sysfs of the sandbox's network namespace, whose files are nobody else's; in the staging
/// directory, as copies can be taken of what is attached only. Where it may not be mounted, the
/// host's.
fn own_sys() -> std::io::Result<PathBuf> {
    let Ok(mounted) = new_filesystem("sysfs", &[], MountAttrFlags::MOUNT_ATTR_RDONLY) else {
        return Ok(PathBuf::from("/sys"));
    };
    let path = PathBuf::from("sysfs");
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
