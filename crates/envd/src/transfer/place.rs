//! From the scratch directory to where the files belong.
//!
//! A file or link is moved to the target, or into it when that is a directory. A directory's content
//! is merged: directories that are there keep their owner and mode, links to directories are
//! followed, files are replaced.

mod across;

use std::{
    ffi::CString,
    fs, io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fstat, openat, renameat, statat},
    io::Errno,
};

use super::{
    Abandoned, Error, MAX_DEPTH,
    extract::{Unpacked, open_directory},
    metadata::Metadata,
    request::{CopyRequest, Source, Target},
    show,
};
use crate::paths;

const NEW_DIRECTORY: u32 = 0o755;

pub(super) fn place(
    scratch: &OwnedFd,
    unpacked: &Unpacked,
    request: &CopyRequest,
    abandoned: Abandoned<'_>,
) -> Result<(), Error> {
    match find(scratch, unpacked, &request.source)? {
        Found::Directory(directory, metadata) => {
            let mut metadata = metadata;
            if request.mode.is_some() {
                // The mode is for what is copied; a target that cannot be entered helps nobody.
                metadata.mode = NEW_DIRECTORY;
            }
            let (uid, gid) = request.ownership.of(metadata.uid, metadata.gid);
            let target = target_directory(
                &request.target.path,
                Metadata {
                    uid,
                    gid,
                    ..metadata
                },
            )?;
            merge(&directory, &target, abandoned, 0)
        }
        Found::Other(parent, name) => {
            let (directory, new_name) = exact_target(&request.target, &name)?;
            move_one(&parent, &name, &directory, &new_name, abandoned, 0)
        }
    }
}

enum Found {
    Directory(OwnedFd, Metadata),
    /// A file or a link, in a directory of the scratch.
    Other(OwnedFd, CString),
}

fn find(scratch: &OwnedFd, unpacked: &Unpacked, source: &Source) -> Result<Found, Error> {
    if unpacked.entries == 0 {
        return Err(missing(source, "there are no uploaded files"));
    }
    if source.unsaid
        && unpacked.top.is_none()
        && let Some(name) = only_entry(scratch)?
    {
        let parent = scratch.try_clone().map_err(|e| failed("", e))?;
        return Ok(Found::Other(parent, name));
    }
    // A name may hold what looks like a glob.
    let literal = walk(scratch, unpacked, &source.literal)?;
    let found = match (literal, &source.before_glob) {
        (None, Some(before)) => {
            walk(scratch, unpacked, before)?.filter(|found| matches!(found, Found::Directory(..)))
        }
        (found, _) => found,
    };
    found.ok_or_else(|| missing(source, "it is not among the uploaded files"))
}

/// The one thing in the archive, if it is not a directory.
fn only_entry(scratch: &OwnedFd) -> Result<Option<CString>, Error> {
    let mut names = Vec::new();
    for name in entries(scratch)? {
        names.push(name?);
        if names.len() > 1 {
            return Ok(None);
        }
    }
    let Some((name, kind)) = names.pop() else {
        return Ok(None);
    };
    Ok((kind != FileType::Directory).then_some(name))
}

fn walk(scratch: &OwnedFd, unpacked: &Unpacked, path: &[String]) -> Result<Option<Found>, Error> {
    let io = |errno: Errno| failed(path.join("/"), errno.into());
    let mut at = scratch.try_clone().map_err(|e| failed("", e))?;
    let Some((last, parents)) = path.split_last() else {
        let found = fstat(&at).map_err(io)?;
        let unsaid = Metadata {
            mode: NEW_DIRECTORY,
            ..Metadata::of(&found)
        };
        return Ok(Some(Found::Directory(at, unpacked.top.unwrap_or(unsaid))));
    };
    for name in parents {
        at = match open_directory(&at, name.as_bytes()) {
            Ok(below) => below,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG) => {
                return Ok(None);
            }
            Err(error) => return Err(io(error)),
        };
    }
    let found = match statat(&at, last.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => found,
        Err(Errno::NOENT | Errno::NAMETOOLONG) => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
        let directory = open_directory(&at, last.as_bytes()).map_err(io)?;
        return Ok(Some(Found::Directory(directory, Metadata::of(&found))));
    }
    let name = CString::new(last.as_str()).map_err(|e| failed(last, e.into()))?;
    Ok(Some(Found::Other(at, name)))
}

/// The directory into which a directory's content goes; a new one is as the source's.
fn target_directory(path: &Path, metadata: Metadata) -> Result<OwnedFd, Error> {
    let shown = path.display();
    let is_new = !fs::metadata(path).is_ok_and(|found| found.is_dir());
    make_directories(path)?;
    let directory = open_following(CWD, path.as_os_str().as_bytes())
        .map_err(|errno| failed(&shown, errno.into()))?;
    if is_new {
        metadata
            .apply(&directory)
            .map_err(|errno| failed(&shown, errno.into()))?;
    }
    Ok(directory)
}

/// The directory and the name of a single file.
fn exact_target(target: &Target, name: &CString) -> Result<(OwnedFd, CString), Error> {
    let path = &target.path;
    let shown = path.display();
    let into = target.is_directory || path.is_dir();
    let (directory, name) = match (path.parent(), path.file_name()) {
        (Some(parent), Some(last)) if !into => {
            let last = CString::new(last.as_bytes()).map_err(|e| failed(&shown, e.into()))?;
            (parent, last)
        }
        _ => (path.as_path(), name.clone()),
    };
    make_directories(directory)?;
    let directory = open_following(CWD, directory.as_os_str().as_bytes())
        .map_err(|errno| failed(&shown, errno.into()))?;
    Ok((directory, name))
}

/// Missing directories on the way to a target are root's.
fn make_directories(path: &Path) -> Result<(), Error> {
    paths::make_directories_of(path, 0, 0).map_err(|e| failed(path.display(), e))
}

fn merge(
    from: &OwnedFd,
    to: &OwnedFd,
    abandoned: Abandoned<'_>,
    depth: usize,
) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(Error::Move("it is nested too deeply".to_owned()));
    }
    for entry in entries(from)? {
        if abandoned() {
            return Err(Error::Abandoned);
        }
        let (name, _) = entry?;
        move_one(from, &name, to, &name, abandoned, depth)?;
    }
    Ok(())
}

fn move_one(
    from: &OwnedFd,
    name: &CString,
    to: &OwnedFd,
    new_name: &CString,
    abandoned: Abandoned<'_>,
    depth: usize,
) -> Result<(), Error> {
    let io = |errno: Errno| failed(show(new_name.as_bytes()), errno.into());
    let kind = kind_of(from, name, AtFlags::SYMLINK_NOFOLLOW).map_err(io)?;
    let here = kind_of(to, new_name, AtFlags::SYMLINK_NOFOLLOW).map_err(io)?;
    let behind = kind_of(to, new_name, AtFlags::empty()).map_err(io)?;
    let directory = Some(FileType::Directory);
    if kind == directory {
        if behind == directory {
            let below = open_directory(from, name.as_bytes()).map_err(io)?;
            let target = open_following(to, new_name.as_bytes()).map_err(io)?;
            return merge(&below, &target, abandoned, depth + 1);
        }
        if here.is_some() {
            return Err(in_the_way(new_name, "a directory cannot replace a file"));
        }
    } else if here == directory || (behind == directory && kind != Some(FileType::Symlink)) {
        return Err(in_the_way(new_name, "a file cannot replace a directory"));
    }
    match renameat(from, name, to, new_name) {
        Ok(()) => Ok(()),
        Err(Errno::XDEV) if kind == directory => {
            across::make_directory(from, name, to, new_name).map_err(io)?;
            let below = open_directory(from, name.as_bytes()).map_err(io)?;
            let target = open_directory(to, new_name.as_bytes()).map_err(io)?;
            merge(&below, &target, abandoned, depth + 1)
        }
        Err(Errno::XDEV) => {
            across::copy(from, name, to, new_name).map_err(|e| failed(show(new_name.as_bytes()), e))
        }
        Err(errno) => Err(io(errno)),
    }
}

/// `None`: nothing there.
fn kind_of(
    directory: &OwnedFd,
    name: &CString,
    flags: AtFlags,
) -> rustix::io::Result<Option<FileType>> {
    match statat(directory, name, flags) {
        Ok(found) => Ok(Some(FileType::from_raw_mode(found.st_mode))),
        Err(Errno::NOENT | Errno::LOOP) => Ok(None),
        Err(error) => Err(error),
    }
}

type Named = (CString, FileType);

fn entries(directory: &OwnedFd) -> Result<impl Iterator<Item = Result<Named, Error>>, Error> {
    let failed = |errno: Errno| failed("reading a directory", errno.into());
    let entries = Dir::read_from(directory).map_err(failed)?;
    Ok(entries.filter_map(move |entry| match entry {
        Ok(entry) => {
            let name = entry.file_name();
            let is_dots = matches!(name.to_bytes(), b"." | b"..");
            (!is_dots).then(|| Ok((name.to_owned(), entry.file_type())))
        }
        Err(errno) => Some(Err(failed(errno))),
    }))
}

fn open_following(parent: impl std::os::fd::AsFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

fn missing(source: &Source, why: &str) -> Error {
    Error::Move(format!("source '{}' not found: {why}", source.shown))
}

fn in_the_way(name: &CString, why: &str) -> Error {
    Error::Move(format!("'{}': {why}", show(name.as_bytes())))
}

fn failed(what: impl std::fmt::Display, source: io::Error) -> Error {
    Error::Place {
        what: format!("'{what}'"),
        source,
    }
}

#[cfg(test)]
mod tests;
