//! Finishing the root from inside, after the host is out of sight.
//!
//! Paths here lead nowhere but into the sandbox, whatever links its earlier life has left.

use std::{
    fs,
    os::{fd::OwnedFd, unix::fs::symlink},
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2},
    io::Errno,
    mount::MountAttrFlags,
};
use soulbox_sys::idmap;
use soulbox_types::guest::{InitSpec, TERMINALS};

use crate::{
    error::{Context, Failure},
    host_mounts::HostMounts,
    mounts::{attach, attach_at, new_filesystem},
    root::as_sandbox_root,
};

const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];
/// The group `tty`, which owns terminals.
const TTY_GROUP: u32 = 5;
const CLOSED: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID
    .union(MountAttrFlags::MOUNT_ATTR_NODEV)
    .union(MountAttrFlags::MOUNT_ATTR_NOEXEC);

pub(crate) fn finish(
    spec: &InitSpec,
    overlays: &[(PathBuf, OwnedFd)],
    host_mounts: &HostMounts,
) -> Result<(), Failure> {
    for (target, overlay) in overlays {
        attach(overlay, target).at_with("attach overlay", || target.display().to_string())?;
    }
    mount_dev(spec, host_mounts)?;
    mount_sys(host_mounts)?;
    attach(&host_mounts.run, Path::new("/run")).at("/run")?;
    mount_proc(spec, host_mounts)?;
    for (target, volume) in &host_mounts.volumes {
        let named = || target.display().to_string();
        let place = as_sandbox_root(spec.id_base, || directory_without_links(target))
            .at_with("place of volume", named)?;
        attach_at(volume, &place).at_with("attach volume", named)?;
    }
    Ok(())
}

/// Opens a directory, making it and those above where they are missing. A link on the way, which
/// an earlier life of the sandbox may have left, is refused: it could lead over `/proc`.
fn directory_without_links(path: &Path) -> std::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut here = openat(CWD, "/", flags, Mode::empty())?;
    for name in path.components() {
        let Component::Normal(name) = name else {
            continue;
        };
        match mkdirat(&here, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        here = openat2(&here, name, flags, Mode::empty(), resolve)?;
    }
    Ok(here)
}

fn mount_dev(spec: &InitSpec, host_mounts: &HostMounts) -> Result<(), Failure> {
    let step = "/dev";
    let dev = Path::new("/dev");
    attach(&host_mounts.dev, dev).at(step)?;
    for (name, device) in &host_mounts.devices {
        attach(device, &dev.join(name)).at_with(step, || (*name).to_owned())?;
    }
    as_sandbox_root(spec.id_base, || {
        let mut links = LINKS.iter();
        links.try_for_each(|(name, target)| symlink(target, dev.join(name)))
    })
    .at(step)?;
    fs::create_dir(dev.join("pts")).at(step)?;
    let group = (spec.id_base + TTY_GROUP).to_string();
    let most = TERMINALS.to_string();
    let options = [
        ("mode", Some("0620")),
        ("ptmxmode", Some("0666")),
        ("gid", Some(group.as_str())),
        ("max", Some(most.as_str())),
    ];
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let terminals = new_filesystem("devpts", &options, attributes).at(step)?;
    attach(&terminals, &dev.join("pts")).at(step)?;
    fs::create_dir(dev.join("shm")).at(step)?;
    attach(&host_mounts.shm, &dev.join("shm")).at("/dev/shm")
}

fn mount_sys(host_mounts: &HostMounts) -> Result<(), Failure> {
    let step = "/sys";
    let sys = Path::new("/sys");
    attach(&host_mounts.sys, sys).at(step)?;
    for (place, mount) in &host_mounts.shown {
        let target = sys.join(place);
        attach(mount, &target).at_with(step, || target.display().to_string())?;
    }
    Ok(())
}

/// A fresh `/proc` of the new pid namespace. It belongs to the host's user namespace, so its
/// sysctls are not writable inside; hiding the rest is a second wall.
fn mount_proc(spec: &InitSpec, host_mounts: &HostMounts) -> Result<(), Failure> {
    let step = "/proc";
    attach(
        &new_filesystem("proc", &[], CLOSED).at(step)?,
        Path::new("/proc"),
    )
    .at(step)?;
    for path in &spec.read_only {
        if path.exists() {
            let copy = idmap::restricted_copy(path, idmap::MOUNT_ATTR_RDONLY).at(step)?;
            attach(&copy, path).at_with(step, || path.display().to_string())?;
        }
    }
    attach(
        &host_mounts.boot_id,
        Path::new("/proc/sys/kernel/random/boot_id"),
    )
    .at(step)?;
    let (mut directories, mut files) =
        (Mask::new(&host_mounts.empty), Mask::new(&host_mounts.null));
    for path in &spec.masked {
        let mask = match fs::metadata(path) {
            Ok(found) if found.is_dir() => &mut directories,
            Ok(_) => &mut files,
            Err(_) => continue,
        };
        mask.apply(path)
            .at_with(step, || path.display().to_string())?;
    }
    Ok(())
}

/// A mount that masks paths (OCI: `maskedPaths`).
struct Mask<'a> {
    mount: &'a OwnedFd,
    /// Where it is attached. From then on only copies of it can be.
    attached: Option<&'a Path>,
}

impl<'a> Mask<'a> {
    fn new(mount: &'a OwnedFd) -> Self {
        Self {
            mount,
            attached: None,
        }
    }

    fn apply(&mut self, path: &'a Path) -> std::io::Result<()> {
        let Some(first) = self.attached else {
            self.attached = Some(path);
            return attach(self.mount, path);
        };
        attach(
            &idmap::restricted_copy(first, idmap::MOUNT_ATTR_NOEXEC)?,
            path,
        )
    }
}
