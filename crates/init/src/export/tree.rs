//! The walk: depth first, with an explicit stack, so that no nesting can exhaust ours.

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::OwnedFd,
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, Stat, fstat, mkdirat, openat, statat},
    io::Errno,
};

use super::{DIRECTORY, attributes, content::CHUNK, entry, links::Links};

/// No tool that works with paths gets here (they end at 4,096 bytes), and each level is two open
/// directories now and more when the layer is removed.
const DEEPEST: usize = 256;
/// Of a place in an error message.
const SHOWN: usize = 300;

pub(super) struct Tree {
    links: Links,
    stack: Vec<Level>,
    buffer: Vec<u8>,
}

/// A directory whose files are copied, and the directories in it that are not.
struct Level {
    name: CString,
    stat: Stat,
    source: OwnedFd,
    copy: OwnedFd,
    below: Vec<CString>,
}

impl Tree {
    pub(super) fn new(links: Links) -> Self {
        Self {
            links,
            stack: Vec::new(),
            buffer: vec![0; CHUNK],
        }
    }

    /// On error [`Self::place`] says where.
    pub(super) fn copy(&mut self, source: OwnedFd, copy: OwnedFd) -> io::Result<()> {
        self.enter(CString::default(), source, copy)?;
        while let Some(level) = self.stack.last_mut() {
            if let Some(name) = level.below.pop() {
                let source = openat(&level.source, &*name, DIRECTORY, Mode::empty())?;
                mkdirat(&level.copy, &*name, Mode::RWXU)?;
                let copy = openat(&level.copy, &*name, DIRECTORY, Mode::empty())?;
                self.enter(name, source, copy)?;
            } else {
                // Last: a default ACL would pass to what is made in it, and that changes its time.
                attributes::copy(&level.source, &level.copy, &level.stat)?;
                self.stack.pop();
            }
        }
        Ok(())
    }

    pub(super) fn finish(self, target: &OwnedFd, name: &str) -> io::Result<()> {
        self.links.finish(target, name)
    }

    /// Where the walk is, for people.
    pub(super) fn place(&self) -> String {
        let mut place = String::from("/");
        for level in self.stack.iter().skip(1) {
            place.push_str(&level.name.to_string_lossy().escape_debug().to_string());
            place.push('/');
            if place.len() > SHOWN {
                let end = place.floor_char_boundary(SHOWN);
                place.truncate(end);
                place.push('…');
                break;
            }
        }
        place
    }

    /// Copies everything in a directory but its directories.
    fn enter(&mut self, name: CString, source: OwnedFd, copy: OwnedFd) -> io::Result<()> {
        if self.stack.len() >= DEEPEST {
            return Err(io::Error::other(format!(
                "directories nest deeper than {DEEPEST} levels"
            )));
        }
        let stat = fstat(&source)?;
        self.stack.push(Level {
            name,
            stat,
            source,
            copy,
            below: Vec::new(),
        });
        let Some(level) = self.stack.last_mut() else {
            return Ok(());
        };
        for entry in Dir::read_from(&level.source)? {
            let entry = entry?;
            let name = entry.file_name();
            if is_self_or_parent(name) {
                continue;
            }
            let stat = statat(&level.source, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                level.below.push(name.to_owned());
            } else {
                let (links, buffer) = (&mut self.links, &mut self.buffer);
                entry::copy(&level.source, &level.copy, name, &stat, links, buffer)
                    .map_err(|e| named(name, &e))?;
            }
        }
        Ok(())
    }
}

pub(super) fn is_empty(directory: &OwnedFd) -> Result<bool, Errno> {
    for entry in Dir::read_from(directory)? {
        if !is_self_or_parent(entry?.file_name()) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_self_or_parent(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

fn named(name: &CStr, error: &io::Error) -> io::Error {
    let name = name.to_string_lossy();
    io::Error::new(error.kind(), format!("{}: {error}", name.escape_debug()))
}
