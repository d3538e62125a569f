//! Unpacks a layer, entry by entry.

use std::{
    ffi::OsStr,
    fs::File,
    io::{BufReader, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

use rustix::{
    fs::{AtFlags, FileType, Gid, Mode, Uid},
    io::Errno,
};

use super::{
    Bounds, LayerError, Meter, decompress,
    name::{Name, shown},
    tar_reader::{Entry, Kind, TarReader},
    tree::{self, Existing, Tree},
};
use crate::digest::Digest;

/// A sandbox has that many ids.
const HIGHEST_ID: u64 = 65_535;
const WHITEOUT: &[u8] = b".wh.";
/// Notes of aufs to itself; only the opaque mark means something to others.
const NOTE: &[u8] = b".wh..wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
const MAX_LINK: usize = 4095;
/// Between two looks at the free disk.
const LOOK_EVERY: u64 = 64 << 20;
const LOOK_EVERY_ENTRIES: u64 = 5000;

#[derive(Debug)]
pub(crate) struct Unpacked {
    /// Of the archive without its compression.
    pub(crate) diff_id: Digest,
    pub(crate) bytes: u64,
    pub(crate) devices_left_out: u64,
    /// Directories that it uses but does not describe.
    pub(crate) implied: Vec<PathBuf>,
}

/// Unpacks a layer of `compressed` bytes into `into`, a new and empty directory.
pub(crate) fn unpack(
    input: impl Read + Send,
    compressed: u64,
    into: &Path,
    bounds: Bounds,
    give_up: &Arc<AtomicBool>,
) -> Result<Unpacked, LayerError> {
    let mut unpacker = Unpacker {
        tar_reader: TarReader::new(open(input, compressed, bounds, give_up)?),
        tree: Tree::new(into).map_err(|cause| tree::write_error_raw(b".", cause))?,
        bounds,
        devices: 0,
        until_look: 0,
        buffer: vec![0; 256 << 10],
    };
    let mut entries = 0;
    while let Some(entry) = unpacker.tar_reader.next()? {
        entries += 1;
        if entries > bounds.entries {
            return Err(LayerError::TooMany(bounds.entries));
        }
        if entries % LOOK_EVERY_ENTRIES == 1 {
            let room = unpacker.tree.has_room_for_names();
            if !room.map_err(|cause| tree::write_error_raw(b".", cause))? {
                return Err(LayerError::NoSpace);
            }
        }
        unpacker.entry(&entry)?;
    }
    let implied = unpacker.tree.finish()?;
    // What is behind the archive's end counts for the digest.
    let meter = unpacker.tar_reader.into_inner();
    let (diff_id, bytes) = meter
        .finish()
        .map_err(|error| LayerError::reading(&error))?;
    Ok(Unpacked {
        diff_id,
        bytes,
        devices_left_out: unpacker.devices,
        implied,
    })
}

/// The digest that unpacking would find, and the size.
pub(crate) fn measure(
    input: impl Read + Send,
    compressed: u64,
    bounds: Bounds,
    give_up: &Arc<AtomicBool>,
) -> Result<(Digest, u64), LayerError> {
    open(input, compressed, bounds, give_up)?
        .finish()
        .map_err(|error| LayerError::reading(&error))
}

fn open<'a>(
    input: impl Read + Send + 'a,
    compressed: u64,
    bounds: Bounds,
    give_up: &Arc<AtomicBool>,
) -> Result<Meter<Box<dyn Read + Send + 'a>>, LayerError> {
    let input = decompress(BufReader::with_capacity(128 << 10, input))?;
    Ok(Meter::new(input, compressed, bounds, Arc::clone(give_up)))
}

struct Unpacker<R> {
    tar_reader: TarReader<R>,
    tree: Tree,
    bounds: Bounds,
    devices: u64,
    /// Bytes that may be written before the free disk is looked at again.
    until_look: u64,
    buffer: Vec<u8>,
}

impl<R: Read> Unpacker<R> {
    fn entry(&mut self, entry: &Entry) -> Result<(), LayerError> {
        let name = Name::parse(&entry.path)?;
        if let Some((folder, file)) = name.split()
            && file.as_bytes().starts_with(WHITEOUT)
        {
            return self.whiteout(entry, folder, file.as_bytes());
        }
        let owner = owner(entry)?;
        let Some((parent, file)) = self.tree.place(&name)? else {
            return self.root(entry, owner);
        };
        match entry.kind {
            Kind::Directory => self.directory(entry, &name, &parent, file, owner),
            Kind::File => self.file(entry, &parent, file, owner),
            Kind::Symlink => self.symlink(entry, &parent, file, owner),
            Kind::HardLink => self.hard_link(entry, &parent, file),
            Kind::Fifo => self.fifo(entry, &parent, file, owner),
            Kind::Device => {
                self.devices += 1;
                Ok(())
            }
        }
    }

    fn root(&mut self, entry: &Entry, owner: (Uid, Gid)) -> Result<(), LayerError> {
        if entry.kind != Kind::Directory {
            return Err(refused(entry, "the root is a directory"));
        }
        let here = self.tree.directory(Path::new(""))?;
        let root = tree::open_directory(&here, OsStr::new("."))?;
        self.tree
            .describe_directory(&root, Path::new(""), entry, owner)
    }

    fn whiteout(&mut self, entry: &Entry, folder: &Path, file: &[u8]) -> Result<(), LayerError> {
        let hidden = file.strip_prefix(WHITEOUT).unwrap_or_default();
        if file != OPAQUE && file.starts_with(NOTE) {
            return Ok(());
        }
        if matches!(hidden, b"" | b"." | b"..") {
            return Err(LayerError::Escape {
                entry: shown(&entry.path),
                reason: "it would remove a directory from within",
            });
        }
        // Where this layer has put something else, all that was below is hidden anyway. Tools
        // list it nevertheless, after what took the place of the directory.
        if !self.tree.is_free_for_directory(folder) {
            return Ok(());
        }
        let parent = self.tree.directory(folder)?;
        match file {
            OPAQUE => tree::set_opaque(&tree::open_directory(&parent, OsStr::new("."))?),
            _ => tree::whiteout(&parent, OsStr::from_bytes(hidden)),
        }
    }

    fn directory(
        &mut self,
        entry: &Entry,
        name: &Name,
        parent: &OwnedFd,
        file: &OsStr,
        owner: (Uid, Gid),
    ) -> Result<(), LayerError> {
        let before = self.tree.clear(parent, file, true)?;
        if before != Existing::Directory {
            rustix::fs::mkdirat(parent, file, Mode::from_raw_mode(0o700)).map_err(failed(entry))?;
        }
        let directory = tree::open_directory(parent, file)?;
        self.tree
            .describe_directory(&directory, name.path(), entry, owner)?;
        if before == Existing::Whiteout {
            tree::set_opaque(&directory)?;
        }
        Ok(())
    }

    fn file(
        &mut self,
        entry: &Entry,
        parent: &OwnedFd,
        name: &OsStr,
        owner: (Uid, Gid),
    ) -> Result<(), LayerError> {
        self.tree.clear(parent, name, false)?;
        let mut file = tree::create_file(parent, name)?;
        loop {
            let count = self.tar_reader.read(&mut self.buffer)?;
            if count == 0 {
                break;
            }
            self.reserve(count as u64)?;
            file.write_all(self.buffer.get(..count).unwrap_or_default())
                .map_err(|cause| tree::write_error_raw(&entry.path, cause))?;
        }
        finish_file(&file, entry, owner)
    }

    /// Keeps the operator's reserve free.
    fn reserve(&mut self, bytes: u64) -> Result<(), LayerError> {
        if self.until_look < bytes {
            let free = self.tree.free_bytes();
            let free = free.map_err(|cause| tree::write_error_raw(b".", cause))?;
            let usable = free.saturating_sub(self.bounds.min_free);
            if usable < bytes {
                return Err(LayerError::NoSpace);
            }
            self.until_look = usable.min(LOOK_EVERY).max(bytes);
        }
        self.until_look -= bytes;
        Ok(())
    }

    fn symlink(
        &mut self,
        entry: &Entry,
        parent: &OwnedFd,
        name: &OsStr,
        (uid, gid): (Uid, Gid),
    ) -> Result<(), LayerError> {
        let target = entry.link.as_slice();
        if target.is_empty() || target.len() > MAX_LINK || target.contains(&0) {
            return Err(refused(entry, "its target is not a path"));
        }
        self.tree.clear(parent, name, false)?;
        rustix::fs::symlinkat(target, parent, name).map_err(failed(entry))?;
        let itself = AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::chownat(parent, name, Some(uid), Some(gid), itself).map_err(failed(entry))?;
        let times = tree::timestamps(entry.mtime);
        rustix::fs::utimensat(parent, name, &times, itself).map_err(failed(entry))
    }

    /// Layers are unpacked each for itself: the target must be in the same one, as the tools that
    /// make layers see to.
    fn hard_link(
        &mut self,
        entry: &Entry,
        parent: &OwnedFd,
        name: &OsStr,
    ) -> Result<(), LayerError> {
        let target = Name::parse(&entry.link).map_err(|_| LayerError::Escape {
            entry: shown(&entry.path),
            reason: "it is a hard link to a name with .. in it, or to no name at all",
        })?;
        let missing = || {
            refused(
                entry,
                "it is a hard link to something that the layer has not",
            )
        };
        let (directory, file) = target.split().ok_or_else(missing)?;
        let directory = match self.tree.find(directory) {
            Ok(directory) => directory,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Err(missing()),
            Err(error) => return Err(failed(entry)(error)),
        };
        let itself = AtFlags::SYMLINK_NOFOLLOW;
        let found = match rustix::fs::statat(&directory, file, itself) {
            Ok(found) => found,
            Err(Errno::NOENT) => return Err(missing()),
            Err(error) => return Err(failed(entry)(error)),
        };
        match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile | FileType::Symlink | FileType::Fifo => {}
            // A whiteout is the absence of something.
            FileType::CharacterDevice => return Err(missing()),
            _ => return Err(refused(entry, "it is a hard link to a directory")),
        }
        let same = rustix::fs::statat(parent, name, itself)
            .is_ok_and(|now| (now.st_dev, now.st_ino) == (found.st_dev, found.st_ino));
        if same {
            return Ok(());
        }
        self.tree.clear(parent, name, false)?;
        match rustix::fs::linkat(&directory, file, parent, name, AtFlags::empty()) {
            // It went with the directory whose place the link was to take.
            Err(Errno::NOENT) => Err(refused(
                entry,
                "it is a hard link to something in the directory that it replaces",
            )),
            linked => linked.map_err(failed(entry)),
        }
    }

    fn fifo(
        &mut self,
        entry: &Entry,
        parent: &OwnedFd,
        name: &OsStr,
        (uid, gid): (Uid, Gid),
    ) -> Result<(), LayerError> {
        self.tree.clear(parent, name, false)?;
        let mode = Mode::from_raw_mode(entry.mode);
        rustix::fs::mknodat(parent, name, FileType::Fifo, Mode::empty(), 0)
            .map_err(failed(entry))?;
        let itself = AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::chownat(parent, name, Some(uid), Some(gid), itself).map_err(failed(entry))?;
        // Made a moment ago and no link.
        rustix::fs::chmodat(parent, name, mode, AtFlags::empty()).map_err(failed(entry))?;
        let times = tree::timestamps(entry.mtime);
        rustix::fs::utimensat(parent, name, &times, itself).map_err(failed(entry))
    }
}

fn finish_file(file: &File, entry: &Entry, owner: (Uid, Gid)) -> Result<(), LayerError> {
    tree::describe(file.as_fd(), entry, owner)?;
    rustix::fs::futimens(file, &tree::timestamps(entry.mtime)).map_err(failed(entry))
}

fn owner(entry: &Entry) -> Result<(Uid, Gid), LayerError> {
    let id = |id: u64| match u32::try_from(id) {
        Ok(small) if id <= HIGHEST_ID => Ok(small),
        _ => Err(LayerError::Owner {
            entry: shown(&entry.path),
            id,
            highest: HIGHEST_ID,
        }),
    };
    Ok((Uid::from_raw(id(entry.uid)?), Gid::from_raw(id(entry.gid)?)))
}

fn refused(entry: &Entry, reason: &str) -> LayerError {
    LayerError::Entry {
        entry: shown(&entry.path),
        reason: reason.to_owned(),
    }
}

fn failed(entry: &Entry) -> impl Fn(Errno) -> LayerError {
    move |error| tree::write_error_raw(&entry.path, error.into())
}

#[cfg(test)]
mod tests;
