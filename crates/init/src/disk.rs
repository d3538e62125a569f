//! Ext4 images that only this mount namespace has mounted.

use std::{
    fs::{File, OpenOptions},
    os::fd::OwnedFd,
    path::Path,
};

use rustix::mount::MountAttrFlags;
use soulbox_sys::loopdev::LoopDevice;

use crate::{
    error::{Context, Failure},
    mounts::new_filesystem,
};

/// Mounts the sandbox's writable space. The loop device frees itself when the last mount namespace
/// that has it is gone, so a sandbox that dies in any way gives its device back.
///
/// Also returns the kernel's name of the device.
pub(crate) fn mount(path: &Path) -> Result<(OwnedFd, String), Failure> {
    let image = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .at("open disk")?;
    let device = LoopDevice::attach(&image).at("attach disk")?;
    let source = device.path().display().to_string();
    let options = [
        ("source", Some(source.as_str())),
        // The image is a file in the host's page cache: a flush there orders nothing on the real
        // disk. Pauses and snapshots sync the file itself.
        ("nobarrier", None),
        // For the same reason nothing is gained by writing a file out in the moment it is closed
        // when it was emptied before, and much is lost: all of it goes through the loop device,
        // at the cost of whoever waits for the close.
        ("noauto_da_alloc", None),
        // As long as the host itself keeps what was written from its disk. Every five seconds, which
        // is usual, would be work in every sandbox for nothing, and on a full host the first commit
        // that fails makes the file system read-only for good.
        ("commit", Some("30")),
        // Deleted files give their space back to the host.
        ("discard", None),
        // Finds equal blocks of extended attributes, which sandboxes hardly have: what overlayfs
        // notes is inside the inodes. Its table is 8 KiB of kernel memory for each disk.
        ("no_mbcache", None),
        // Zeroing unused inode tables would fill the sparse file in the background.
        ("noinit_itable", None),
    ];
    let mounted = new_filesystem("ext4", &options, attributes()).at("mount disk")?;
    let name = device.path().file_name().unwrap_or_default();
    Ok((mounted, name.to_string_lossy().into_owned()))
}

/// Mounts the disk of a stopped sandbox to read from it. The kernel replays its journal first.
pub(crate) fn mount_to_read(path: &Path) -> Result<OwnedFd, Failure> {
    let image = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .at("open disk")?;
    let device = LoopDevice::attach(&image).at("attach disk")?;
    let source = device.path().display().to_string();
    let options = [("source", Some(source.as_str())), ("ro", None)];
    let attributes = attributes() | MountAttrFlags::MOUNT_ATTR_RDONLY;
    new_filesystem("ext4", &options, attributes).at("mount disk")
}

/// Mounts a snapshot. Its journal was replayed when it was taken.
pub(crate) fn mount_read_only(path: &Path) -> Result<OwnedFd, Failure> {
    let image = File::open(path).at_with("open snapshot", || path.display().to_string())?;
    let device = LoopDevice::attach_read_only(&image).at("attach snapshot")?;
    let source = device.path().display().to_string();
    let options = [
        ("source", Some(source.as_str())),
        ("ro", None),
        ("noload", None),
    ];
    let attributes = attributes() | MountAttrFlags::MOUNT_ATTR_RDONLY;
    new_filesystem("ext4", &options, attributes)
        .at_with("mount snapshot", || path.display().to_string())
}

fn attributes() -> MountAttrFlags {
    MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOATIME
}
