//! Asking the kernel about namespaces.
#![expect(
    unsafe_code,
    reason = "ioctls, and unshare, which may split what threads share"
)]

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

const NS_GET_OWNER_UID: libc::Ioctl = 0xb704;

/// Leaves a program of one thread in a network of its own, with nothing in it.
pub fn enter_new_network() -> io::Result<()> {
    // SAFETY: NEWNET changes the network namespace only; descriptors stay shared.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }?;
    Ok(())
}

/// The user (as the host counts) that made a user namespace.
pub fn namespace_owner(namespace: impl AsFd) -> io::Result<u32> {
    let mut owner: libc::uid_t = 0;
    // SAFETY: the kernel writes one uid_t to the pointer.
    let result = unsafe {
        libc::ioctl(
            namespace.as_fd().as_raw_fd(),
            NS_GET_OWNER_UID,
            &raw mut owner,
        )
    };
    if result == 0 {
        Ok(owner)
    } else {
        Err(io::Error::last_os_error())
    }
}
