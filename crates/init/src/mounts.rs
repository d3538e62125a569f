//! Small steps of the mount API, as they are used to put a root together.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::CWD,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create,
        fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
    },
};

/// A new file system, not attached anywhere yet. An option without a value is a flag.
pub(crate) fn new_filesystem(
    kind: &str,
    options: &[(&str, Option<&str>)],
    attributes: MountAttrFlags,
) -> io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        match value {
            Some(value) => fsconfig_set_string(context.as_fd(), *key, *value)?,
            None => fsconfig_set_flag(context.as_fd(), *key)?,
        }
    }
    fsconfig_create(context.as_fd())?;
    Ok(fsmount(
        context.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        attributes,
    )?)
}

pub(crate) fn attach(mount: &OwnedFd, target: &Path) -> io::Result<()> {
    Ok(move_mount(
        mount.as_fd(),
        "",
        CWD,
        target,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )?)
}

/// The same, on a directory that is open already.
pub(crate) fn attach_at(mount: &OwnedFd, target: &OwnedFd) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(mount.as_fd(), "", target.as_fd(), "", flags)?)
}

/// A memory file system that only the host may look into.
pub(crate) fn memory(target: &Path, bytes: u64) -> io::Result<()> {
    let size = bytes.to_string();
    let options = [
        ("size", Some(size.as_str())),
        ("nr_inodes", Some("65536")),
        ("mode", Some("0700")),
    ];
    let mounted = new_filesystem("tmpfs", &options, MountAttrFlags::empty())?;
    attach(&mounted, target)
}
