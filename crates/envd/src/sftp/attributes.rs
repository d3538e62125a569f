//! What is told of a file, and what is to be changed of one.

use std::{
    fs::{self, File, Metadata, Permissions},
    io,
    os::{
        fd::AsFd,
        unix::fs::{MetadataExt, PermissionsExt},
    },
};

use rustix::fs::{Timespec, Timestamps, futimens};

use super::wire::{Answer, Fields, Malformed};

const SIZE: u32 = 1;
const OWNERS: u32 = 2;
const PERMISSIONS: u32 = 4;
const TIMES: u32 = 8;
const EXTENDED: u32 = 0x8000_0000;
/// Clients send none.
const MOST_EXTENDED: u32 = 64;

/// Those that a client sent.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) size: Option<u64>,
    pub(super) owners: Option<(u32, u32)>,
    pub(super) permissions: Option<u32>,
    pub(super) times: Option<(u32, u32)>,
}

impl Attributes {
    pub(super) fn read(fields: &mut Fields<'_>) -> Result<Self, Malformed> {
        let flags = fields.number()?;
        let mut read = Self::default();
        if flags & SIZE != 0 {
            read.size = Some(fields.long()?);
        }
        if flags & OWNERS != 0 {
            read.owners = Some((fields.number()?, fields.number()?));
        }
        if flags & PERMISSIONS != 0 {
            read.permissions = Some(fields.number()?);
        }
        if flags & TIMES != 0 {
            read.times = Some((fields.number()?, fields.number()?));
        }
        if flags & EXTENDED != 0 {
            let count = fields.number()?;
            if count > MOST_EXTENDED {
                return Err(Malformed);
            }
            for _ in 0..count {
                fields.bytes()?;
                fields.bytes()?;
            }
        }
        Ok(read)
    }

    pub(super) fn apply(&self, file: &File) -> io::Result<()> {
        if let Some(size) = self.size {
            file.set_len(size)?;
        }
        if let Some(mode) = self.permissions {
            file.set_permissions(Permissions::from_mode(mode & 0o7777))?;
        }
        if let Some((accessed, modified)) = self.times {
            futimens(file.as_fd(), &times(accessed, modified))?;
        }
        if let Some((user, group)) = self.owners {
            std::os::unix::fs::fchown(file, Some(user), Some(group))?;
        }
        Ok(())
    }

    /// Of a name: it may be something that cannot be opened.
    pub(super) fn apply_to(&self, path: &std::path::Path) -> io::Result<()> {
        if let Some(size) = self.size {
            File::options().write(true).open(path)?.set_len(size)?;
        }
        if let Some(mode) = self.permissions {
            fs::set_permissions(path, Permissions::from_mode(mode & 0o7777))?;
        }
        if let Some((accessed, modified)) = self.times {
            let (at, flags) = (rustix::fs::CWD, rustix::fs::AtFlags::empty());
            rustix::fs::utimensat(at, path, &times(accessed, modified), flags)?;
        }
        if let Some((user, group)) = self.owners {
            std::os::unix::fs::chown(path, Some(user), Some(group))?;
        }
        Ok(())
    }
}

fn times(accessed: u32, modified: u32) -> Timestamps {
    let at = |seconds: u32| Timespec {
        tv_sec: seconds.into(),
        tv_nsec: 0,
    };
    Timestamps {
        last_access: at(accessed),
        last_modification: at(modified),
    }
}

pub(super) fn write(answer: Answer, of: &Metadata) -> Answer {
    let seconds = |time: i64| u32::try_from(time.max(0)).unwrap_or(u32::MAX);
    answer
        .number(SIZE | OWNERS | PERMISSIONS | TIMES)
        .long(of.size())
        .number(of.uid())
        .number(of.gid())
        .number(of.mode())
        .number(seconds(of.atime()))
        .number(seconds(of.mtime()))
}

/// A line as `ls -l` has it, which clients show as it is.
pub(super) fn line(name: &[u8], of: &Metadata) -> Vec<u8> {
    let mode = of.mode();
    let kind = match mode & libc::S_IFMT {
        libc::S_IFDIR => 'd',
        libc::S_IFLNK => 'l',
        libc::S_IFCHR => 'c',
        libc::S_IFBLK => 'b',
        libc::S_IFIFO => 'p',
        libc::S_IFSOCK => 's',
        _ => '-',
    };
    let bits: String = (0..9)
        .rev()
        .zip("rwxrwxrwx".chars())
        .map(|(bit, letter)| if mode >> bit & 1 == 1 { letter } else { '-' })
        .collect();
    let modified = crate::time::rfc3339(of.mtime(), 0);
    let (day, time) = modified.split_once('T').unwrap_or_default();
    let time = time.get(..5).unwrap_or_default();
    let mut line = format!(
        "{kind}{bits} {:>4} {:<8} {:<8} {:>10} {day} {time} ",
        of.nlink(),
        of.uid(),
        of.gid(),
        of.size(),
    )
    .into_bytes();
    line.extend_from_slice(name);
    line
}
