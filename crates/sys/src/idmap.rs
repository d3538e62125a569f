//! Mounts whose file owners are shifted by a user namespace's map.
#![expect(unsafe_code, reason = "mount_setattr has no safe wrapper")]

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::mount::{OpenTreeFlags, open_tree};

pub use libc::{MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC, MOUNT_ATTR_NOSUID, MOUNT_ATTR_RDONLY};

/// A detached copy of the mount at `path`, rooted there, with the ids of `user_namespace` and
/// `MOUNT_ATTR_*` flags added. Mount points below `path` are not part of it.
pub fn shifted_copy(
    path: &Path,
    user_namespace: BorrowedFd<'_>,
    attributes: u64,
) -> io::Result<OwnedFd> {
    let tree = detached_copy(path)?;
    let mut attr = attributes_only(attributes | libc::MOUNT_ATTR_IDMAP);
    attr.userns_fd = u64::try_from(user_namespace.as_raw_fd()).unwrap_or(u64::MAX);
    set_attributes(&tree, &attr)?;
    Ok(tree)
}

/// A detached copy of the mount at `path` with `MOUNT_ATTR_*` flags added.
pub fn restricted_copy(path: &Path, attributes: u64) -> io::Result<OwnedFd> {
    let tree = detached_copy(path)?;
    set_attributes(&tree, &attributes_only(attributes))?;
    Ok(tree)
}

fn detached_copy(path: &Path) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    Ok(open_tree(rustix::fs::CWD, path, flags)?)
}

fn attributes_only(set: u64) -> libc::mount_attr {
    libc::mount_attr {
        attr_set: set,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    }
}

fn set_attributes(tree: &OwnedFd, attr: &libc::mount_attr) -> io::Result<()> {
    // SAFETY: the path is empty (AT_EMPTY_PATH) and attr is a valid struct of the size given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            std::ptr::from_ref(attr),
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
