//! Puts the sandbox's root together under the staging directory.
//!
//! ```text
//! staging/            a tmpfs, only in this mount namespace
//!   disk              the ext4 image, ids shifted
//!   lower-<n>-<m>     template layers, read-only, ids shifted
//!   root              overlay 0 on /, overlay 1 on /usr, …, then /dev, /sys, /run
//! ```

use std::{
    fs,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::CWD,
    mount::{MountAttrFlags, MountPropagationFlags, mount_change},
    thread::{
        CapabilitiesSecureBits, Gid, Uid, set_capabilities_secure_bits, set_thread_res_gid,
        set_thread_res_uid,
    },
};
use soulbox_sys::idmap;
use soulbox_types::guest::{InitSpec, OverlaySpec};

use crate::{
    devices, disk,
    error::{Context, Failure},
    mounts::{attach, memory, new_filesystem},
};

/// Where the finished root is, below the staging directory.
pub(crate) fn path(spec: &InitSpec) -> PathBuf {
    spec.staging.join("root")
}

pub(crate) fn assemble(spec: &InitSpec, user_namespace: &OwnedFd) -> Result<(), Failure> {
    // Nothing that we mount may show up on the host, and nothing the host mounts here.
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).at("private mounts")?;
    memory(&spec.staging, 0, 1 << 20, "0700", MountAttrFlags::empty()).at("staging")?;
    // Overlay options separate paths with colons; short relative names need no escaping.
    std::env::set_current_dir(&spec.staging).at("staging")?;
    fs::create_dir("root").at("staging")?;

    attach_shifted_disk(spec, user_namespace)?;
    for (number, overlay) in spec.overlays.iter().enumerate() {
        mount_overlay(number, overlay, user_namespace, spec.id_base)?;
    }
    devices::mount(spec)?;
    mount_sys(spec)?;
    let run = path(spec).join("run");
    let attributes = MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOSUID;
    memory(&run, spec.id_base, 64 << 20, "0755", attributes).at("/run")
}

fn attach_shifted_disk(spec: &InitSpec, user_namespace: &OwnedFd) -> Result<(), Failure> {
    fs::create_dir("disk").at("staging")?;
    let plain = disk::mount(spec)?;
    attach(&plain, Path::new("disk")).at("attach disk")?;
    let attributes = idmap::MOUNT_ATTR_NODEV;
    let shifted = idmap::shifted_copy(Path::new("disk"), user_namespace.as_fd(), attributes)
        .at("shift ids of disk")?;
    // On top of the plain one, which is thereby out of reach.
    attach(&shifted, Path::new("disk")).at("attach disk")
}

fn mount_overlay(
    number: usize,
    overlay: &OverlaySpec,
    user_namespace: &OwnedFd,
    id_base: u32,
) -> Result<(), Failure> {
    let mut lower = Vec::new();
    for (layer, source) in overlay.lower.iter().enumerate() {
        let name = format!("lower-{number}-{layer}");
        fs::create_dir(&name).at("staging")?;
        let attributes = idmap::MOUNT_ATTR_RDONLY | idmap::MOUNT_ATTR_NODEV;
        let shifted = idmap::shifted_copy(source, user_namespace.as_fd(), attributes)
            .at_with("shift ids of layer", || source.display().to_string())?;
        attach(&shifted, Path::new(&name)).at("attach layer")?;
        lower.push(name);
    }
    let options = [
        ("lowerdir", lower.join(":")),
        ("upperdir", format!("disk/upper-{number}")),
        ("workdir", format!("disk/work-{number}")),
        // Package managers rename directories of lower layers.
        ("redirect_dir", "on".to_owned()),
    ];
    let options: Vec<_> = options
        .iter()
        .map(|(k, v)| (*k, Some(v.as_str())))
        .collect();
    let target = overlay.target.strip_prefix("/").unwrap_or(&overlay.target);
    let mounted = as_owner_of_layers(id_base, || {
        new_filesystem("overlay", &options, MountAttrFlags::MOUNT_ATTR_NODEV)
    })
    .at_with("overlay", || overlay.target.display().to_string())?;
    attach(&mounted, &Path::new("root").join(target))
        .at_with("attach overlay", || overlay.target.display().to_string())
}

/// Overlayfs works on its layers with the identity of whoever mounted it. The host's root has no
/// place in the layers' shifted ids, so the mount is made as the sandbox's root; capabilities stay
/// those of the host's, which overlayfs needs for its own attributes.
fn as_owner_of_layers<T>(
    id_base: u32,
    mount: impl FnOnce() -> std::io::Result<T>,
) -> std::io::Result<T> {
    set_capabilities_secure_bits(CapabilitiesSecureBits::NO_SETUID_FIXUP)?;
    become_id(id_base)?;
    let result = mount();
    become_id(0)?;
    set_capabilities_secure_bits(CapabilitiesSecureBits::empty())?;
    result
}

fn become_id(effective: u32) -> std::io::Result<()> {
    set_thread_res_gid(Gid::ROOT, Gid::from_raw(effective), Gid::ROOT)?;
    set_thread_res_uid(Uid::ROOT, Uid::from_raw(effective), Uid::ROOT)?;
    Ok(())
}

/// A tiny `/sys`: cpu topology for runtimes that count cores, and the sandbox's own cgroup.
fn mount_sys(spec: &InitSpec) -> Result<(), Failure> {
    let step = "/sys";
    let sys = path(spec).join("sys");
    let attributes = MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    memory(&sys, spec.id_base, 1 << 20, "0755", attributes).at(step)?;
    let flags = idmap::MOUNT_ATTR_RDONLY
        | idmap::MOUNT_ATTR_NOSUID
        | idmap::MOUNT_ATTR_NODEV
        | idmap::MOUNT_ATTR_NOEXEC;
    let show = |source: &Path, target: &Path| -> Result<(), Failure> {
        fs::create_dir_all(target).at(step)?;
        let copy =
            idmap::restricted_copy(source, flags).at_with(step, || source.display().to_string())?;
        attach(&copy, target).at_with(step, || target.display().to_string())
    };
    for name in ["devices/system/cpu", "devices/system/node"] {
        let source = Path::new("/sys").join(name);
        if source.is_dir() {
            show(&source, &sys.join(name))?;
        }
    }
    for (source, place) in &spec.cgroup_view {
        show(source, &sys.join("fs/cgroup").join(place))?;
    }
    // Read-only from here on: what is shown is shown.
    let copy = rustix::mount::open_tree(CWD, &sys, rustix::mount::OpenTreeFlags::OPEN_TREE_CLOEXEC)
        .at(step)?;
    idmap::restrict(&copy, flags).at(step)
}
