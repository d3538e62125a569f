use std::{ffi::CStr, os::fd::AsFd};

use rustix::fs::{FileType, Stat, fstat, readlinkat};

use crate::{Error, Result, path::CleanPath};

/// What there is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub kind: Kind,
    /// Absolute, as seen from the volume's root.
    pub path: String,
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub accessed: Timestamp,
    pub modified: Timestamp,
    pub changed: Timestamp,
    /// Of a symbolic link.
    pub target: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    Directory,
    Symlink,
    /// A socket, a pipe or a device.
    Other,
}

/// Seconds since 1970, and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    pub seconds: i64,
    pub nanoseconds: u32,
}

impl Kind {
    pub(crate) fn of(stat: &Stat) -> Self {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            _ => Self::Other,
        }
    }
}

impl Entry {
    /// Of something opened with `O_PATH`.
    pub(crate) fn of_open(file: impl AsFd, path: &CleanPath) -> Result<Self> {
        let stat = fstat(file.as_fd()).map_err(Error::errno("look at the path"))?;
        let target = match Kind::of(&stat) {
            Kind::Symlink => link_target(file.as_fd(), c""),
            _ => None,
        };
        Ok(Self::new(path.absolute(), &stat, target))
    }

    pub(crate) fn new(path: String, stat: &Stat, target: Option<String>) -> Self {
        let name = match path.rsplit('/').next() {
            Some("") | None => "/".to_owned(),
            Some(name) => name.to_owned(),
        };
        Self {
            name,
            kind: Kind::of(stat),
            path,
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            accessed: timestamp(stat.st_atime, stat.st_atime_nsec),
            modified: timestamp(stat.st_mtime, stat.st_mtime_nsec),
            changed: timestamp(stat.st_ctime, stat.st_ctime_nsec),
            target,
        }
    }
}

pub(crate) fn link_target(folder: impl AsFd, name: &CStr) -> Option<String> {
    let target = readlinkat(folder, name, Vec::new()).ok()?;
    Some(target.to_string_lossy().into_owned())
}

fn timestamp(seconds: i64, nanoseconds: u64) -> Timestamp {
    Timestamp {
        seconds,
        nanoseconds: u32::try_from(nanoseconds).unwrap_or_default(),
    }
}
