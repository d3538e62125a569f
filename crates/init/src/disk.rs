//! The sandbox's writable space: an ext4 image that only this mount namespace has mounted.

use std::{fs::OpenOptions, os::fd::OwnedFd};

use rustix::mount::MountAttrFlags;
use soulbox_sys::loopdev::LoopDevice;
use soulbox_types::guest::InitSpec;

use crate::{
    error::{Context, Failure},
    mounts::new_filesystem,
};

/// Mounts the image. The loop device frees itself when the last mount namespace that has it is
/// gone, so a sandbox that dies in any way gives its device back.
pub(crate) fn mount(spec: &InitSpec) -> Result<OwnedFd, Failure> {
    let image = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&spec.disk)
        .at("open disk")?;
    let device = LoopDevice::attach(&image).at("attach disk")?;
    let path = device.path().display().to_string();
    let options = [
        ("source", Some(path.as_str())),
        // The image is a file in the host's page cache: a flush there orders nothing on the real
        // disk. Snapshots sync the file itself.
        ("nobarrier", None),
        // Deleted files give their space back to the host.
        ("discard", None),
        // Zeroing unused inode tables would fill the sparse file in the background.
        ("noinit_itable", None),
    ];
    let attributes = MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOATIME;
    new_filesystem("ext4", &options, attributes).at("mount disk")
}
