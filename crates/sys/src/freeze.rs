//! A mounted file system that stands still: all that was written to it is on its device, its journal
//! is empty, and whoever writes waits.
#![expect(unsafe_code, reason = "the kernel freezes file systems with ioctls")]

use std::{
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

const FIFREEZE: libc::Ioctl = 0xC004_5877_u32 as libc::Ioctl;
const FITHAW: libc::Ioctl = 0xC004_5878_u32 as libc::Ioctl;

/// Holds a file system still until it is dropped.
///
/// The kernel keeps it so when this process is killed: who finds it again has to [`thaw`] it.
#[derive(Debug)]
pub struct FrozenFileSystem {
    folder: OwnedFd,
}

impl FrozenFileSystem {
    /// `folder` is any of it.
    pub fn freeze(folder: OwnedFd) -> io::Result<Self> {
        control(&folder, FIFREEZE)?;
        Ok(Self { folder })
    }
}

impl Drop for FrozenFileSystem {
    fn drop(&mut self) {
        // It was frozen here, so there is nothing that could be wrong with this call.
        control(&self.folder, FITHAW).ok();
    }
}

/// Lets a file system go on that a process was killed over. `false`: it was not frozen.
pub fn thaw(folder: impl AsFd) -> io::Result<bool> {
    match control(&folder, FITHAW) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
        Err(error) => Err(error),
    }
}

fn control(folder: &impl AsFd, request: libc::Ioctl) -> io::Result<()> {
    // SAFETY: the descriptor is open, and neither request reads or writes its argument.
    let result = unsafe { libc::ioctl(folder.as_fd().as_raw_fd(), request, 0) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
