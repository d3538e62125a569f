//! What clients do with the files of a volume.

mod list;
mod make;
mod remove;
mod resolve;
mod write;

use std::{
    fs::File,
    os::fd::{AsRawFd, OwnedFd},
    path::Path,
};

use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid, chmodat, chownat, open};

pub use self::{list::MAX_DEPTH, write::Writer};
use crate::{
    Entry, Error, Kind, Result,
    disk_reserve::DiskReserve,
    mount::{FILES, STAGING},
    path::CleanPath,
};

/// The files of one mounted volume. Everything here blocks.
#[derive(Debug)]
pub struct Content {
    root: OwnedFd,
    staging: OwnedFd,
    reserve: DiskReserve,
}

/// What to set. What is absent stays, or is the default for something new.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Changes {
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Permission bits.
    pub mode: Option<u32>,
}

impl Content {
    pub(crate) fn open(mount: &Path, reserve: DiskReserve) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = |name: &str| {
            open(mount.join(name), flags, Mode::empty()).map_err(Error::errno("open the volume"))
        };
        Ok(Self {
            root: folder(FILES)?,
            staging: folder(STAGING)?,
            reserve,
        })
    }

    /// Of the path itself: a link is reported as a link.
    pub fn stat(&self, path: &str) -> Result<Entry> {
        let path = CleanPath::parse(path)?;
        Entry::of_open(self.look(&path)?, &path)
    }

    /// Where a link points, when the path is one.
    pub fn change(&self, path: &str, changes: Changes) -> Result<Entry> {
        let path = CleanPath::parse(path)?;
        let found = self.find(&path)?;
        match Entry::of_open(&found, &path)?.kind {
            Kind::File | Kind::Directory => {}
            Kind::Symlink | Kind::Other => return Err(Error::Special),
        }
        changes.apply(&found)?;
        Entry::of_open(&found, &path)
    }

    /// A plain file, ready to be read, and what it was when it was opened.
    pub fn read(&self, path: &str) -> Result<(File, Entry)> {
        let path = CleanPath::parse(path)?;
        let found = self.find(&path)?;
        let entry = Entry::of_open(&found, &path)?;
        match entry.kind {
            Kind::File => {}
            Kind::Directory => return Err(Error::IsADirectory),
            Kind::Symlink | Kind::Other => return Err(Error::Special),
        }
        // Through the descriptor: it is the very file that was looked at.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file =
            open(own_path(&found), flags, Mode::empty()).map_err(Error::errno("open the file"))?;
        Ok((file.into(), entry))
    }
}

impl Changes {
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            uid: self.uid.or(other.uid),
            gid: self.gid.or(other.gid),
            mode: self.mode.or(other.mode),
        }
    }

    /// To a file or folder opened with `O_PATH`. The owner first: that clears bits of the mode.
    pub(crate) fn apply(self, found: &OwnedFd) -> Result<()> {
        if self.uid.is_some() || self.gid.is_some() {
            let (uid, gid) = (self.uid.map(Uid::from_raw), self.gid.map(Gid::from_raw));
            chownat(found, c"", uid, gid, AtFlags::EMPTY_PATH)
                .map_err(Error::errno("change the owner"))?;
        }
        if let Some(mode) = self.mode {
            let mode = Mode::from_raw_mode(mode & 0o7777);
            chmodat(CWD, own_path(found), mode, AtFlags::empty())
                .map_err(Error::errno("change the mode"))?;
        }
        Ok(())
    }
}

/// What was made in a folder opened with `O_PATH` is there after a power cut, too.
fn sync_folder(folder: &OwnedFd) -> Result<()> {
    soulbox_durable::sync_folder(Path::new(&own_path(folder)))
        .map_err(|error| Error::of("write the folder out", error))
}

/// Leads to what the descriptor has open, whatever has happened to its name.
fn own_path(found: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", found.as_raw_fd())
}
