//! A new process in new namespaces.
//!
//! Only single-threaded programs may call this (`soulbox-init` is one): a child cloned from a
//! threaded process could find a lock held by a thread that does not exist in it.
#![expect(unsafe_code, reason = "clone3 has no safe wrapper")]

use std::io;

use libc::{c_long, clone_args, pid_t};

/// Who notices the end of the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parent {
    /// The caller.
    Caller,
    /// The caller's own parent: the child outlives the caller without being re-parented.
    Grandparent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cloned {
    Child,
    /// The child's pid, as the caller's pid namespace counts.
    Parent(pid_t),
}

/// Like `fork`, with namespace flags (`CLONE_NEWPID` and so on).
pub fn clone_process(namespaces: i32, parent: Parent) -> io::Result<Cloned> {
    let flags = u64::try_from(namespaces).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: clone_args is plain data for which all zeroes is a valid value.
    let mut args: clone_args = unsafe { std::mem::zeroed() };
    args.flags = flags;
    match parent {
        Parent::Caller => args.exit_signal = libc::SIGCHLD.unsigned_abs().into(),
        // The kernel takes the exit signal from the caller then, and refuses another.
        Parent::Grandparent => args.flags |= u64::from(libc::CLONE_PARENT.unsigned_abs()),
    }
    // SAFETY: no stack and no CLONE_VM: the child gets a copy of our memory, as with fork.
    // The caller promises (module doc) that no other thread exists.
    let result: c_long =
        unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<clone_args>()) };
    match result {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Cloned::Child),
        pid => pid_t::try_from(pid)
            .map(Cloned::Parent)
            .map_err(|_| io::Error::other("clone3 gave a pid out of range")),
    }
}

/// Leaves the caller in a mount namespace of its own, a copy of the one before.
pub fn new_mount_namespace() -> io::Result<()> {
    // SAFETY: no descriptor table or signal state is unshared; only the view of mounts changes.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }?;
    Ok(())
}
