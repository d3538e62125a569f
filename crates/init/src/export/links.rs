//! Files with several names. Of each, one name more is kept in a directory of its own until the
//! walk is over: that needs neither a path nor an open file per link.

use std::{collections::HashSet, ffi::CStr, io, os::fd::OwnedFd};

use rustix::{
    fs::{AtFlags, Mode, linkat, mkdirat, openat, unlinkat},
    io::Errno,
};

use super::DIRECTORY;

pub(super) struct Links {
    directory: OwnedFd,
    /// By the number that the file has in the source.
    kept: HashSet<u64>,
}

impl Links {
    pub(super) fn begin(target: &OwnedFd, name: &str) -> io::Result<Self> {
        mkdirat(target, name, Mode::RWXU)?;
        Ok(Self {
            directory: openat(target, name, DIRECTORY, Mode::empty())?,
            kept: HashSet::new(),
        })
    }

    /// Gives the copy of a file one name more; `false` when there is no copy yet.
    pub(super) fn reuse(&self, file: u64, target: &OwnedFd, name: &CStr) -> io::Result<bool> {
        if !self.kept.contains(&file) {
            return Ok(false);
        }
        let known = file.to_string();
        match linkat(&self.directory, &*known, target, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            // Our own name for it was one too many: the last one gets a copy.
            Err(Errno::MLINK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn keep(&mut self, file: u64, target: &OwnedFd, name: &CStr) -> io::Result<()> {
        if self.kept.insert(file) {
            let known = file.to_string();
            linkat(target, name, &self.directory, &*known, AtFlags::empty())?;
        }
        Ok(())
    }

    pub(super) fn finish(self, target: &OwnedFd, name: &str) -> io::Result<()> {
        for file in self.kept {
            unlinkat(&self.directory, file.to_string(), AtFlags::empty())?;
        }
        Ok(unlinkat(target, name, AtFlags::REMOVEDIR)?)
    }
}
