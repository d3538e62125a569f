//! The sandbox's root file systems, put together under the staging directory.
//!
//! ```text
//! staging/            a tmpfs, only in this mount namespace
//!   disk              the ext4 image, ids shifted
//!   s<n>              images of snapshots below it, read-only, ids shifted
//!   l<n>-<m>          template layers, read-only, ids shifted
//!   root              overlay 0; the others are attached from inside
//! ```
//!
//! The disk and the snapshots were written by hostile code: no path below `root` is used here.

use std::{
    fs,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    mount::{MountAttrFlags, MountPropagationFlags, mount_change},
    thread::{
        CapabilitiesSecureBits, Gid, Uid, set_capabilities_secure_bits, set_thread_res_gid,
        set_thread_res_uid,
    },
};
use soulbox_sys::idmap;
use soulbox_types::guest::{InitSpec, OverlaySpec};

use crate::{
    disk,
    error::{Context, Failure},
    mounts::{attach, memory, new_filesystem},
};

/// Where the finished root is, below the staging directory.
pub(crate) fn path(spec: &InitSpec) -> PathBuf {
    spec.staging.join("root")
}

/// What is put together.
pub(crate) struct Root {
    /// All overlays but the root's, with their places inside.
    pub(crate) inner: Vec<(PathBuf, OwnedFd)>,
    /// The kernel's name of the device that the disk is on.
    pub(crate) disk: String,
}

/// Mounts overlay 0 on the root's place.
pub(crate) fn assemble(spec: &InitSpec, user_namespace: &OwnedFd) -> Result<Root, Failure> {
    // Nothing that we mount may show up on the host, and nothing the host mounts here.
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).at("private mounts")?;
    memory(&spec.staging, spec.tmpfs_bytes).at("staging")?;
    // Short relative names need no escaping in overlay options.
    std::env::set_current_dir(&spec.staging).at("staging")?;
    fs::create_dir("root").at("staging")?;

    let (mounted, disk) = disk::mount(&spec.disk)?;
    attach_shifted("disk", &mounted, user_namespace, 0)?;
    for (number, image) in spec.snapshots.iter().enumerate() {
        let name = format!("s{number}");
        let mounted = disk::mount_read_only(image)?;
        attach_shifted(&name, &mounted, user_namespace, idmap::MOUNT_ATTR_RDONLY)?;
    }
    let mut inner = Vec::new();
    for (number, overlay) in spec.overlays.iter().enumerate() {
        let mounted = overlay_of(spec, number, overlay, user_namespace)?;
        if overlay.target == Path::new("/") {
            attach(&mounted, Path::new("root")).at("attach root")?;
        } else {
            inner.push((overlay.target.clone(), mounted));
        }
    }
    Ok(Root { inner, disk })
}

fn attach_shifted(
    name: &str,
    plain: &OwnedFd,
    user_namespace: &OwnedFd,
    attributes: u64,
) -> Result<(), Failure> {
    let target = Path::new(name);
    fs::create_dir(target).at("staging")?;
    attach(plain, target).at("attach disk")?;
    let attributes = attributes | idmap::MOUNT_ATTR_NODEV;
    let shifted =
        idmap::shifted_copy(target, user_namespace.as_fd(), attributes).at("shift ids of disk")?;
    // On top of the plain one, which is thereby out of reach.
    attach(&shifted, target).at("attach disk")
}

fn overlay_of(
    spec: &InitSpec,
    number: usize,
    overlay: &OverlaySpec,
    user_namespace: &OwnedFd,
) -> Result<OwnedFd, Failure> {
    // What was the writable part of a snapshot's source is a lower layer here, above the template.
    let mut lower: Vec<String> = (0..spec.snapshots.len())
        .map(|n| format!("s{n}/u{number}"))
        .collect();
    for (layer, source) in overlay.lower.iter().enumerate() {
        let name = format!("l{number}-{layer}");
        fs::create_dir(&name).at("staging")?;
        let attributes = idmap::MOUNT_ATTR_RDONLY | idmap::MOUNT_ATTR_NODEV;
        let shifted = idmap::shifted_copy(source, user_namespace.as_fd(), attributes)
            .at_with("shift ids of layer", || source.display().to_string())?;
        attach(&shifted, Path::new(&name)).at("attach layer")?;
        lower.push(name);
    }
    as_sandbox_root(spec.id_base, || mount_overlay(number, &lower))
        .at_with("overlay", || overlay.target.display().to_string())
}

/// The most that the kernel takes in one option.
const LONGEST_OPTION: usize = 255;

/// All layers in one option, which every kernel knows and which has room for some fifty; more have
/// one option each, since Linux 6.8. An older kernel complains of those in its log.
fn mount_overlay(number: usize, lower: &[String]) -> std::io::Result<OwnedFd> {
    let (upper, work) = (format!("disk/u{number}"), format!("disk/w{number}"));
    let rest = [
        ("upperdir", Some(upper.as_str())),
        ("workdir", Some(work.as_str())),
        // Package managers rename directories of lower layers.
        ("redirect_dir", Some("on")),
        // A file whose data stays below could not be a layer of its own.
        ("metacopy", Some("off")),
    ];
    let joined = lower.join(":");
    let layers = if joined.len() <= LONGEST_OPTION {
        vec![("lowerdir", Some(joined.as_str()))]
    } else {
        let each = lower.iter().map(|name| ("lowerdir+", Some(name.as_str())));
        each.collect()
    };
    let options: Vec<_> = layers.into_iter().chain(rest).collect();
    new_filesystem("overlay", &options, MountAttrFlags::MOUNT_ATTR_NODEV).map_err(|error| {
        if joined.len() > LONGEST_OPTION && error.kind() == std::io::ErrorKind::InvalidInput {
            let count = lower.len();
            std::io::Error::other(format!("{error}; {count} layers need Linux 6.8 or newer"))
        } else {
            error
        }
    })
}

/// Overlayfs works on its layers with the identity of whoever mounted it, and whoever makes a file
/// in it owns that. The host's root has no place in the layers' shifted ids, so both happen as the
/// sandbox's root; capabilities stay those of the host's, which overlayfs needs for its own
/// attributes.
pub(crate) fn as_sandbox_root<T>(
    id_base: u32,
    work: impl FnOnce() -> std::io::Result<T>,
) -> std::io::Result<T> {
    set_capabilities_secure_bits(CapabilitiesSecureBits::NO_SETUID_FIXUP)?;
    become_id(id_base)?;
    let result = work();
    become_id(0)?;
    set_capabilities_secure_bits(CapabilitiesSecureBits::empty())?;
    result
}

fn become_id(effective: u32) -> std::io::Result<()> {
    set_thread_res_gid(Gid::ROOT, Gid::from_raw(effective), Gid::ROOT)?;
    set_thread_res_uid(Uid::ROOT, Uid::from_raw(effective), Uid::ROOT)?;
    Ok(())
}
