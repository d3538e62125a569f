//! Owner, mode and time of what is copied.

use std::os::fd::{AsFd, OwnedFd};

use rustix::{
    fs::{
        AtFlags, Gid, Mode, Stat, Timespec, Timestamps, Uid, chmodat, chownat, fchmod, fchown,
        utimensat,
    },
    io::Errno,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Metadata {
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Permissions and special bits.
    pub(super) mode: u32,
}

impl Metadata {
    pub(super) fn of(found: &Stat) -> Self {
        Self {
            uid: found.st_uid,
            gid: found.st_gid,
            mode: found.st_mode & 0o7777,
        }
    }

    /// For what can be opened.
    pub(super) fn apply(self, file: impl AsFd) -> rustix::io::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        fchown(&file, Some(uid), Some(gid))?;
        // After the owner: changing that takes the special bits away.
        fchmod(&file, Mode::from_raw_mode(self.mode))
    }

    /// For links, which have no mode of their own.
    pub(super) fn apply_owner(self, parent: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        let no_follow = AtFlags::SYMLINK_NOFOLLOW;
        chownat(parent, name, Some(uid), Some(gid), no_follow)
    }

    /// For FIFOs, which must not be opened.
    pub(super) fn apply_unopened(self, parent: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
        self.apply_owner(parent, name)?;
        let mode = Mode::from_raw_mode(self.mode);
        chmodat(parent, name, mode, AtFlags::empty())
    }
}

pub(super) fn set_modified(parent: &OwnedFd, name: &[u8], seconds: i64) -> rustix::io::Result<()> {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    match utimensat(parent, name, &times, AtFlags::SYMLINK_NOFOLLOW) {
        // A time that this file system cannot hold.
        Err(Errno::INVAL | Errno::RANGE) => Ok(()),
        set => set,
    }
}
