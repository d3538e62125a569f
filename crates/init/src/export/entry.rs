//! One entry of a directory that is not a directory.

use std::{ffi::CStr, io, os::fd::OwnedFd};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid, chownat, mknodat, openat, readlinkat,
    symlinkat, utimensat,
};

use super::{attributes, content, links::Links};

pub(super) fn copy(
    source: &OwnedFd,
    target: &OwnedFd,
    name: &CStr,
    stat: &Stat,
    links: &mut Links,
    buffer: &mut [u8],
) -> io::Result<()> {
    if stat.st_nlink > 1 && links.reuse(stat.st_ino, target, name)? {
        return Ok(());
    }
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let from = openat(source, name, flags | OFlags::RDONLY, Mode::empty())?;
            let flags = flags | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
            let to = openat(target, name, flags, Mode::RUSR | Mode::WUSR)?;
            let size = u64::try_from(stat.st_size).unwrap_or(0);
            content::copy(&from, &to, size, buffer)?;
            attributes::copy(&from, &to, stat)?;
        }
        FileType::Symlink => {
            let leads_to = readlinkat(source, name, Vec::new())?;
            symlinkat(&*leads_to, target, name)?;
            attributes_by_name(target, name, stat)?;
        }
        FileType::Fifo => {
            let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
            mknodat(target, name, FileType::Fifo, mode, 0)?;
            attributes_by_name(target, name, stat)?;
            // Explicitly: the umask took its part. The name is our own, just made.
            rustix::fs::chmodat(target, name, mode, AtFlags::empty())?;
        }
        // How overlayfs says that a name of the layers below is gone.
        FileType::CharacterDevice if stat.st_rdev == 0 => {
            mknodat(target, name, FileType::CharacterDevice, Mode::empty(), 0)?;
        }
        // A socket without its server is nothing, and there are no devices in a sandbox.
        _ => return Ok(()),
    }
    if stat.st_nlink > 1 {
        links.keep(stat.st_ino, target, name)?;
    }
    Ok(())
}

/// For what cannot be opened without following or waiting.
fn attributes_by_name(target: &OwnedFd, name: &CStr, stat: &Stat) -> io::Result<()> {
    let (user, group) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    chownat(target, name, Some(user), Some(group), flags)?;
    utimensat(target, name, &attributes::times(stat), flags)?;
    Ok(())
}
