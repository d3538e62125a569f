//! Mounting a volume's image in the server's mount namespace.
//!
//! A mount outlives a server that is killed, and a sandbox keeps the file system when the server
//! unmounts it. Two loop devices over one image would be two file systems that destroy each other,
//! so a device that has the image already is used again: the kernel then mounts the same file
//! system a second time.

use std::{
    fs::OpenOptions,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
};

use fs_err as fs;
use rustix::{
    fs::CWD,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
        fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
        open_tree, unmount,
    },
};
use soulbox_sys::loopdev::LoopDevice;

pub(crate) const FILES: &str = "files";
pub(crate) const STAGING: &str = "staging";

/// The whole file system, for the server.
pub(crate) const DISK: &str = "disk";
/// The part of it that sandboxes see.
pub(crate) const MOUNT: &str = "mnt";

/// Mounts what is not mounted yet of the volume in `folder`.
pub(crate) fn mount(folder: &Path, image: &Path) -> io::Result<()> {
    let (disk, target) = (folder.join(DISK), folder.join(MOUNT));
    if !is_mounted(&disk)? {
        mount_image(image, &disk)?;
    }
    if !is_mounted(&target)? {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = open_tree(CWD, disk.join(FILES), flags)?;
        attach(&tree, &target)?;
    }
    Ok(())
}

/// What is in use stays alive, unseen, until it is not.
pub(crate) fn unmount_lazily(folder: &Path) -> io::Result<()> {
    for target in [folder.join(MOUNT), folder.join(DISK)] {
        while target.exists() && is_mounted(&target)? {
            unmount(&target, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?;
        }
    }
    Ok(())
}

/// Whether any of the volume in `folder` is mounted.
pub(crate) fn has_mounts(folder: &Path) -> io::Result<bool> {
    for target in [folder.join(MOUNT), folder.join(DISK)] {
        if target.exists() && is_mounted(&target)? {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(crate) fn is_mounted(target: &Path) -> io::Result<bool> {
    let above = target.parent().unwrap_or(target);
    Ok(fs::metadata(target)?.dev() != fs::metadata(above)?.dev())
}

fn mount_image(image: &Path, target: &Path) -> io::Result<()> {
    let image = fs::canonicalize(image)?;
    // The open device keeps it attached until the mount does.
    let (_used, _made);
    let device = if let Some((file, path)) = device_of(&image)? {
        _used = file;
        path
    } else {
        let file = OpenOptions::new().read(true).write(true).open(&image)?;
        let device = LoopDevice::attach(&file)?;
        let path = device.path().to_owned();
        _made = device;
        path
    };
    mount_device(&device, target)
}

fn mount_device(device: &Path, target: &Path) -> io::Result<()> {
    let context = fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), "source", device)?;
    fsconfig_set_string(context.as_fd(), "errors", "remount-ro")?;
    // Deleted files give their space back to the host; unused inode tables stay holes.
    fsconfig_set_flag(context.as_fd(), "discard")?;
    fsconfig_set_flag(context.as_fd(), "noinit_itable")?;
    fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NOATIME;
    let mount = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    attach(&mount, target)
}

fn attach(mount: &OwnedFd, target: &Path) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    Ok(move_mount(mount.as_fd(), "", CWD, target, flags)?)
}

/// A loop device that has this image already.
fn device_of(image: &Path) -> io::Result<Option<(std::fs::File, PathBuf)>> {
    for entry in fs::read_dir("/sys/block")? {
        let name = entry?.file_name();
        let Some(name) = name.to_str().filter(|name| name.starts_with("loop")) else {
            continue;
        };
        let path = PathBuf::from(format!("/dev/{name}"));
        if !has_image(name, image) {
            continue;
        }
        let device = OpenOptions::new().read(true).write(true).open(&path)?;
        // Until it was open, it could be let go of and given to another image.
        if has_image(name, image) {
            return Ok(Some((device, path)));
        }
    }
    Ok(None)
}

fn has_image(device: &str, image: &Path) -> bool {
    let file = format!("/sys/block/{device}/loop/backing_file");
    std::fs::read_to_string(file)
        .is_ok_and(|text| Path::new(text.strip_suffix('\n').unwrap_or(&text)) == image)
}
