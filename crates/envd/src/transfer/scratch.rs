//! The scratch directory that an archive is unpacked into first.

use std::{
    fs::{self, DirBuilder},
    io,
    os::{fd::OwnedFd, unix::fs::DirBuilderExt},
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::removal;

/// Removed when dropped, however deep what was unpacked is.
pub(super) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Next to the target, so that most of it can be moved instead of copied; seen by root only.
    pub(super) fn near(target: &Path) -> io::Result<Self> {
        let directory = target
            .ancestors()
            .find(|path| fs::metadata(path).is_ok_and(|found| found.is_dir()))
            .unwrap_or(Path::new("/"));
        let mut random = [0; 8];
        soulbox_types::id::fill_random(&mut random);
        let name = format!(".soulbox-copy-{:016x}", u64::from_ne_bytes(random));
        let path = directory.join(name);
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self { path })
    }

    pub(super) fn open(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(CWD, &self.path, flags, Mode::empty())?)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed now could not be later.
        let _left = removal::remove_tree(&self.path);
    }
}
