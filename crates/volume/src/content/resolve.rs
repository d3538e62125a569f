//! From a name to a descriptor, without ever leaving the volume.

use std::os::fd::{AsFd, OwnedFd};

use rustix::{
    fs::{Mode, OFlags, ResolveFlags, openat2},
    io::Errno,
};

use super::Content;
use crate::{Error, Result, path::CleanPath};

/// A rename elsewhere in the tree can make the kernel ask for another try.
const TRIES: u32 = 32;

impl Content {
    /// What the path names, a link included.
    pub(super) fn look(&self, path: &CleanPath) -> Result<OwnedFd> {
        self.resolve(path, OFlags::PATH | OFlags::NOFOLLOW)
    }

    /// What the path leads to.
    pub(super) fn find(&self, path: &CleanPath) -> Result<OwnedFd> {
        self.resolve(path, OFlags::PATH)
    }

    pub(super) fn find_directory(&self, path: &CleanPath) -> Result<OwnedFd> {
        self.resolve(path, OFlags::PATH | OFlags::DIRECTORY)
    }

    fn resolve(&self, path: &CleanPath, flags: OFlags) -> Result<OwnedFd> {
        open_below(&self.root, &path.relative(), flags, ResolveFlags::empty())
            .map_err(Error::errno("open the path"))
    }
}

/// Links are taken as if `root` were the root of everything.
pub(super) fn open_below(
    root: impl AsFd,
    path: impl rustix::path::Arg + Copy,
    flags: OFlags,
    more: ResolveFlags,
) -> rustix::io::Result<OwnedFd> {
    let rules = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV | more;
    for _ in 1..TRIES {
        match openat2(
            root.as_fd(),
            path,
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            rules,
        ) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            done => return done,
        }
    }
    openat2(
        root.as_fd(),
        path,
        flags | OFlags::CLOEXEC,
        Mode::empty(),
        rules,
    )
}
