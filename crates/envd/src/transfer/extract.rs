//! Unpacks an archive into the scratch directory, and nowhere else.
//!
//! Nothing is named by a path with more than one component: every directory on the way is opened
//! without following links, so an archive's own links lead nowhere.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, linkat, mkdirat, mknodat, openat, symlinkat, unlinkat},
    io::Errno,
};

use super::{
    Abandoned, Error, MAX_DEPTH,
    archive::{Archive, Entry, Kind, broken},
    attributes,
    metadata::{Metadata, set_modified},
    owner::Ownership,
    show,
};

const BUFFER: usize = 64 << 10;
/// Of directories that the archive does not describe.
const DIRECTORY_MODE: u32 = 0o755;

/// What was unpacked.
#[derive(Debug, Default)]
pub(super) struct Unpacked {
    pub(super) entries: u64,
    /// What the archive says of its own top directory, if it does.
    pub(super) top: Option<Metadata>,
}

pub(super) struct Extractor<'a> {
    root: OwnedFd,
    ownership: Ownership,
    mode: Option<u32>,
    abandoned: Abandoned<'a>,
    /// Entries come directory by directory: the last one stays open.
    current: Option<(Vec<Vec<u8>>, OwnedFd)>,
    buffer: Vec<u8>,
}

impl<'a> Extractor<'a> {
    pub(super) fn new(
        root: OwnedFd,
        ownership: Ownership,
        mode: Option<u32>,
        abandoned: Abandoned<'a>,
    ) -> Self {
        Self {
            root,
            ownership,
            mode,
            abandoned,
            current: None,
            buffer: vec![0; BUFFER],
        }
    }

    pub(super) fn unpack<R: Read>(mut self, archive: &mut Archive<R>) -> Result<Unpacked, Error> {
        let mut unpacked = Unpacked::default();
        while let Some(entry) = archive.next()? {
            if (self.abandoned)() {
                return Err(Error::Abandoned);
            }
            unpacked.entries += 1;
            let components = components(&entry.path)?;
            match components.split_last() {
                Some((name, parents)) => self.entry(&entry, name, parents, archive)?,
                None if entry.kind == Kind::Directory => unpacked.top = Some(self.metadata(&entry)),
                None => return Err(Error::Archive("an entry without a name".to_owned())),
            }
        }
        Ok(unpacked)
    }

    fn metadata(&self, entry: &Entry) -> Metadata {
        let (uid, gid) = self.ownership.of(entry.uid, entry.gid);
        let mode = self.mode.unwrap_or(entry.mode);
        Metadata { uid, gid, mode }
    }

    fn entry<R: Read>(
        &mut self,
        entry: &Entry,
        name: &[u8],
        parents: &[&[u8]],
        content: &mut Archive<R>,
    ) -> Result<(), Error> {
        let metadata = self.metadata(entry);
        self.enter(parents)?;
        let (Some((_, parent)), buffer) = (&self.current, &mut self.buffer) else {
            return Ok(());
        };
        let failed = |errno: Errno| failed(&entry.path, errno.into());
        match entry.kind {
            Kind::Directory => {
                match mkdirat(parent, name, Mode::RWXU) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(failed(error)),
                }
                let directory =
                    open_directory(parent, name).map_err(|e| refused(&entry.path, e))?;
                attributes::write(&directory, &entry.attributes).map_err(failed)?;
                metadata.apply(&directory).map_err(failed)?;
            }
            Kind::File => {
                let flags = OFlags::WRONLY
                    | OFlags::CREATE
                    | OFlags::EXCL
                    | OFlags::NOFOLLOW
                    | OFlags::CLOEXEC;
                let mut file: File =
                    replacing(parent, name, || openat(parent, name, flags, Mode::RUSR))
                        .map_err(failed)?
                        .into();
                self::write(content, &mut file, buffer, self.abandoned, &entry.path)?;
                attributes::write(&file, &entry.attributes).map_err(failed)?;
                metadata.apply(&file).map_err(failed)?;
                set_modified(parent, name, entry.modified).map_err(failed)?;
            }
            Kind::Symlink => {
                let target = OsStr::from_bytes(&entry.link);
                replacing(parent, name, || symlinkat(target, parent, name)).map_err(failed)?;
                metadata.apply_owner(parent, name).map_err(failed)?;
                set_modified(parent, name, entry.modified).map_err(failed)?;
            }
            Kind::HardLink => {
                let target = components(&entry.link)?;
                let Some((old, parents)) = target.split_last() else {
                    return Err(Error::Archive("a link without a target".to_owned()));
                };
                let from = self.find(parents, &entry.link)?;
                replacing(parent, name, || {
                    linkat(&from, *old, parent, name, AtFlags::empty())
                })
                .map_err(failed)?;
            }
            Kind::Fifo => {
                let kind = FileType::Fifo;
                replacing(parent, name, || mknodat(parent, name, kind, Mode::RUSR, 0))
                    .map_err(failed)?;
                metadata.apply_unopened(parent, name).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Opens a directory below the root, with those on the way that are missing.
    fn enter(&mut self, parents: &[&[u8]]) -> Result<(), Error> {
        if let Some((current, _)) = &self.current
            && current
                .iter()
                .map(Vec::as_slice)
                .eq(parents.iter().copied())
        {
            return Ok(());
        }
        let mut at = self.root.try_clone().map_err(|e| failed(b"", e))?;
        for (depth, name) in parents.iter().enumerate() {
            let refused = |errno| refused(&parents[..=depth].join(&b'/'), errno);
            at = match open_directory(&at, name) {
                Err(Errno::NOENT) => {
                    mkdirat(&at, *name, Mode::RWXU).map_err(refused)?;
                    let made = open_directory(&at, name).map_err(refused)?;
                    // Nothing is known of it, so it is as its files would make it.
                    let (uid, gid) = self.ownership.of(0, 0);
                    let mode = self.mode.unwrap_or(DIRECTORY_MODE);
                    let metadata = Metadata { uid, gid, mode };
                    metadata.apply(&made).map_err(refused)?;
                    made
                }
                opened => opened.map_err(refused)?,
            };
        }
        let parents = parents.iter().map(|name| name.to_vec()).collect();
        self.current = Some((parents, at));
        Ok(())
    }

    /// A directory that must be there.
    fn find(&self, parents: &[&[u8]], shown: &[u8]) -> Result<OwnedFd, Error> {
        let mut at = self.root.try_clone().map_err(|e| failed(b"", e))?;
        for name in parents {
            at = open_directory(&at, name).map_err(|errno| refused(shown, errno))?;
        }
        Ok(at)
    }
}

/// The parts of a name in the archive. `/` at its start means nothing there.
fn components(path: &[u8]) -> Result<Vec<&[u8]>, Error> {
    let refused = |why: &str| Error::Archive(format!("'{}' {why}", show(path)));
    if path.contains(&0) {
        return Err(refused("holds a NUL character"));
    }
    let mut components = Vec::new();
    for component in path.split(|byte| *byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => return Err(refused("leads out of the archive")),
            name => components.push(name),
        }
    }
    if components.len() > MAX_DEPTH {
        return Err(refused("is nested too deeply"));
    }
    Ok(components)
}

/// The same name may come twice, and the last one counts. A directory is not replaced.
fn replacing<T>(
    parent: &OwnedFd,
    name: &[u8],
    make: impl Fn() -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    match make() {
        Err(Errno::EXIST) => {
            unlinkat(parent, name, AtFlags::empty())?;
            make()
        }
        made => made,
    }
}

fn write<R: Read>(
    content: &mut Archive<R>,
    file: &mut File,
    buffer: &mut [u8],
    abandoned: Abandoned<'_>,
    shown: &[u8],
) -> Result<(), Error> {
    loop {
        if abandoned() {
            return Err(Error::Abandoned);
        }
        match content.read(buffer).map_err(broken)? {
            0 => return Ok(()),
            read => file
                .write_all(&buffer[..read])
                .map_err(|e| failed(shown, e))?,
        }
    }
}

pub(super) fn open_directory(parent: impl AsFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

fn failed(path: &[u8], source: io::Error) -> Error {
    Error::Extract {
        what: format!("'{}'", show(path)),
        source,
    }
}

/// What stands where a directory should be is a file, or a link.
fn refused(path: &[u8], errno: Errno) -> Error {
    match errno {
        Errno::LOOP | Errno::NOTDIR => Error::Archive(format!(
            "'{}' is not a directory of the archive, yet something is to go below it",
            show(path)
        )),
        errno => failed(path, errno.into()),
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
