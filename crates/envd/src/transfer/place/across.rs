//! Moves files to another file system, by copying.

use std::{ffi::CString, fs::File, io, os::fd::OwnedFd};

use rustix::{
    fs::{
        AtFlags, FileType, Mode, OFlags, Stat, fstat, mkdirat, mknodat, openat, readlinkat, statat,
        symlinkat, unlinkat,
    },
    io::Errno,
};

use crate::transfer::{
    attributes,
    extract::open_directory,
    metadata::{Metadata, set_modified},
};

/// An empty one like that in the scratch.
pub(super) fn make_directory(
    from: &OwnedFd,
    name: &CString,
    to: &OwnedFd,
    new_name: &CString,
) -> rustix::io::Result<()> {
    let source = open_directory(from, name.as_bytes())?;
    mkdirat(to, new_name, Mode::RWXU)?;
    let made = open_directory(to, new_name.as_bytes())?;
    attributes::write(&made, &attributes::read(&source))?;
    Metadata::of(&fstat(&source)?).apply(&made)
}

/// A file, link or FIFO in place of what is there. What is half copied is removed.
pub(super) fn copy(
    from: &OwnedFd,
    name: &CString,
    to: &OwnedFd,
    new_name: &CString,
) -> io::Result<()> {
    let source = statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
    match unlinkat(to, new_name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let copied = match FileType::from_raw_mode(source.st_mode) {
        FileType::Symlink => copy_link(from, name, to, new_name, &source),
        FileType::Fifo => copy_fifo(to, new_name, &source),
        _ => copy_file(from, name, to, new_name, &source),
    };
    if copied.is_err() {
        let _never_made = unlinkat(to, new_name, AtFlags::empty());
    }
    copied
}

fn copy_file(
    from: &OwnedFd,
    name: &CString,
    to: &OwnedFd,
    new_name: &CString,
    found: &Stat,
) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut source: File = openat(from, name, flags, Mode::empty())?.into();
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut copy: File = openat(to, new_name, flags, Mode::RUSR)?.into();
    io::copy(&mut source, &mut copy)?;
    attributes::write(&copy, &attributes::read(&source))?;
    Metadata::of(found).apply(&copy)?;
    Ok(set_modified(to, new_name.as_bytes(), found.st_mtime)?)
}

fn copy_link(
    from: &OwnedFd,
    name: &CString,
    to: &OwnedFd,
    new_name: &CString,
    found: &Stat,
) -> io::Result<()> {
    let target = readlinkat(from, name, Vec::new())?;
    symlinkat(&target, to, new_name)?;
    Metadata::of(found).apply_owner(to, new_name.as_bytes())?;
    Ok(set_modified(to, new_name.as_bytes(), found.st_mtime)?)
}

fn copy_fifo(to: &OwnedFd, new_name: &CString, found: &Stat) -> io::Result<()> {
    mknodat(to, new_name, FileType::Fifo, Mode::RUSR, 0)?;
    Ok(Metadata::of(found).apply_unopened(to, new_name.as_bytes())?)
}
