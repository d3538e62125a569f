//! Files into a tar: owners, modes, times, links, hard links, attributes.
//!
//! What cannot be copied is left out: devices, sockets, and what the kernel only pretends to have
//! (`/proc` and its like).

mod header;

use std::{
    collections::HashMap,
    ffi::CStr,
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use rustix::{
    fs::{
        AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, fstatfs, openat, readlinkat, statat,
    },
    io::Errno,
};

use self::header::Described;
use super::{MAX_DEPTH, attributes};

/// Files with several names of which the first is remembered; more of them are packed as if each
/// name were a file of its own.
const MAX_REMEMBERED: usize = 50_000;
const BUFFER: usize = 64 << 10;

/// What is to be packed.
pub(super) enum Top {
    Directory(OwnedFd),
    /// With its name.
    File(OwnedFd, Vec<u8>),
}

impl Top {
    /// Follows links. Never waits for a FIFO or a device.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        // Asked before it is opened: opening some devices does something.
        let found = rustix::fs::stat(path)?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => {
                let directory = openat(CWD, path, flags | OFlags::DIRECTORY, Mode::empty())?;
                Ok(Self::Directory(directory))
            }
            FileType::RegularFile => {
                let name = path
                    .file_name()
                    .map_or(&b"file"[..], |name| name.as_bytes());
                let file = crate::paths::open_regular(path)?;
                Ok(Self::File(file, name.to_vec()))
            }
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

pub(super) struct Packer<'a, W> {
    out: &'a mut W,
    /// First names of files that have several.
    names: HashMap<(u64, u64), Vec<u8>>,
    buffer: Vec<u8>,
    device: u64,
}

impl<'a, W: Write> Packer<'a, W> {
    pub(super) fn new(out: &'a mut W) -> Self {
        Self {
            out,
            names: HashMap::new(),
            buffer: vec![0; BUFFER],
            device: 0,
        }
    }

    /// A directory as `./` with its content below; a file under its own name.
    pub(super) fn pack(mut self, top: Top) -> io::Result<()> {
        match top {
            Top::Directory(directory) => {
                let found = fstat(&directory)?;
                self.device = found.st_dev;
                self.directory(&directory, &found, b"./", 0)?;
            }
            Top::File(file, name) => {
                let found = fstat(&file)?;
                self.file(file, &found, &name)?;
            }
        }
        // Two empty blocks are the end.
        self.out.write_all(&[0; 1024])
    }

    fn directory(
        &mut self,
        directory: &OwnedFd,
        found: &Stat,
        name: &[u8],
        depth: usize,
    ) -> io::Result<()> {
        if depth > MAX_DEPTH {
            return Err(io::Error::other("directories are nested too deeply"));
        }
        let described = Described::new(name, found).with(attributes::read(directory));
        described.write(self.out)?;
        if found.st_dev != self.device && is_pretended(directory) {
            return Ok(());
        }
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let below = entry.file_name();
            if !matches!(below.to_bytes(), b"." | b"..") {
                let path = [name, below.to_bytes()].concat();
                self.entry(directory, below, path, depth)?;
            }
        }
        Ok(())
    }

    fn entry(
        &mut self,
        parent: &OwnedFd,
        name: &CStr,
        mut path: Vec<u8>,
        depth: usize,
    ) -> io::Result<()> {
        let Some(found) = unless_gone(statat(parent, name, AtFlags::SYMLINK_NOFOLLOW))? else {
            return Ok(());
        };
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => {
                let flags = flags | OFlags::DIRECTORY;
                let Some(below) = unless_gone(openat(parent, name, flags, Mode::empty()))? else {
                    return Ok(());
                };
                path.push(b'/');
                let found = fstat(&below)?;
                self.directory(&below, &found, &path, depth + 1)
            }
            FileType::RegularFile => {
                if self.is_linked(&found, &path)? {
                    return Ok(());
                }
                let Some(file) = unless_gone(openat(parent, name, flags, Mode::empty()))? else {
                    return Ok(());
                };
                let found = fstat(&file)?;
                if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile {
                    self.file(file, &found, &path)?;
                }
                Ok(())
            }
            FileType::Symlink => match unless_gone(readlinkat(parent, name, Vec::new()))? {
                Some(target) => Described::new(&path, &found)
                    .symlink(target.as_bytes())
                    .write(self.out),
                None => Ok(()),
            },
            FileType::Fifo => Described::new(&path, &found).fifo().write(self.out),
            _ => Ok(()),
        }
    }

    /// Another name of a file that is in the archive already becomes a hard link.
    fn is_linked(&mut self, found: &Stat, path: &[u8]) -> io::Result<bool> {
        if found.st_nlink < 2 {
            return Ok(false);
        }
        let identity = (found.st_dev, found.st_ino);
        if let Some(first) = self.names.get(&identity) {
            Described::new(path, found)
                .hard_link(first)
                .write(self.out)?;
            return Ok(true);
        }
        if self.names.len() < MAX_REMEMBERED {
            self.names.insert(identity, path.to_vec());
        }
        Ok(false)
    }

    /// As many bytes as the header says, whatever becomes of the file meanwhile.
    fn file(&mut self, file: OwnedFd, found: &Stat, path: &[u8]) -> io::Result<()> {
        let size = u64::try_from(found.st_size).unwrap_or(0);
        Described::new(path, found)
            .with(attributes::read(&file))
            .sized(size)
            .write(self.out)?;
        let mut content = File::from(file).take(size);
        let mut left = size;
        while left > 0 {
            let read = content.read(&mut self.buffer)?;
            if read == 0 {
                break;
            }
            self.out.write_all(&self.buffer[..read])?;
            left -= read as u64;
        }
        // Cut meanwhile: the rest is zeros, as it would be in a hole.
        let padding = (512 - size % 512) % 512;
        io::copy(&mut io::repeat(0).take(left + padding), self.out)?;
        Ok(())
    }
}

fn unless_gone<T>(result: rustix::io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        // Changed between two looks.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// File systems that show the kernel's state, or that do not outlive the sandbox.
fn is_pretended(directory: impl AsFd) -> bool {
    const KINDS: [u64; 8] = [
        0x9fa0,      // proc
        0x6265_6572, // sysfs
        0x0027_e0eb, // cgroup
        0x6367_7270, // cgroup2
        0x1cd1,      // devpts
        0x1980_0202, // mqueue
        0x0102_1994, // tmpfs
        0x6462_6720, // debugfs
    ];
    fstatfs(directory)
        .is_ok_and(|found| u64::try_from(found.f_type).is_ok_and(|kind| KINDS.contains(&kind)))
}

#[cfg(test)]
mod tests;
