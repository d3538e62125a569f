//! New files. They are written in the staging folder and appear whole, or not at all.

use std::{fs::File, io, os::fd::OwnedFd, sync::Arc};

use rustix::{
    fs::{AtFlags, Mode, OFlags, RenameFlags, openat, renameat_with, unlinkat},
    io::Errno,
};
use uuid::Uuid;

use super::{Changes, Content, sync_folder};
use crate::{Entry, Error, Kind, Result, path::CleanPath};

const NEW_FILE: Changes = Changes {
    uid: Some(1000),
    gid: Some(1000),
    mode: Some(0o644),
};

/// A file under way. Dropped before [`Writer::finish`], it leaves nothing.
#[derive(Debug)]
pub struct Writer {
    content: Arc<Content>,
    parent: OwnedFd,
    path: CleanPath,
    name: String,
    staged: String,
    file: File,
    changes: Changes,
    force: bool,
}

impl Content {
    /// With `force` a file that exists is replaced, and its owner and mode stay.
    pub fn write(self: &Arc<Self>, path: &str, changes: Changes, force: bool) -> Result<Writer> {
        let path = CleanPath::parse(path)?;
        let Some((parent, name)) = path.split() else {
            return Err(Error::IsADirectory);
        };
        self.reserve.check()?;
        let name = name.to_owned();
        let parent = self.find_directory(&parent)?;
        let changes = match self.look(&path) {
            Err(Error::NotFound) => changes,
            Err(error) => return Err(error),
            Ok(found) => {
                let entry = Entry::of_open(found, &path)?;
                match entry.kind {
                    Kind::Directory => return Err(Error::IsADirectory),
                    _ if !force => return Err(Error::Exists),
                    Kind::File => changes.or(Changes {
                        uid: Some(entry.uid),
                        gid: Some(entry.gid),
                        mode: Some(entry.mode),
                    }),
                    Kind::Symlink => changes,
                    Kind::Other => return Err(Error::Special),
                }
            }
        };
        let staged = Uuid::new_v4().to_string();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(&self.staging, &staged, flags, Mode::RUSR | Mode::WUSR)
            .map_err(Error::errno("make a file"))?;
        Ok(Writer {
            content: Arc::clone(self),
            parent,
            path,
            name,
            staged,
            file: file.into(),
            changes,
            force,
        })
    }
}

impl Writer {
    /// Another handle of the file, to write into.
    pub fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Whether the host's disk has room for more: to be asked now and then by whoever writes much.
    /// What it returns blocks.
    pub fn reserve_check(&self) -> impl Fn() -> Result<()> + Clone + Send + use<> {
        let reserve = self.content.reserve.clone();
        move || reserve.check()
    }

    /// The error that is reported for a failed write.
    pub fn failed(error: io::Error) -> Error {
        Error::of("write the file", error)
    }

    /// The file gets its owner, its mode and its name, all on the disk when this returns.
    pub fn finish(self) -> Result<Entry> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = openat(&self.content.staging, &self.staged, flags, Mode::empty())
            .map_err(Error::errno("open the new file"))?;
        self.changes.or(NEW_FILE).apply(&open)?;
        // A full disk of the host shows itself only here.
        self.file.sync_all().map_err(Self::failed)?;
        let flags = if self.force {
            RenameFlags::empty()
        } else {
            RenameFlags::NOREPLACE
        };
        renameat_with(
            &self.content.staging,
            &self.staged,
            &self.parent,
            &self.name,
            flags,
        )
        .map_err(Error::errno("move the new file to its place"))?;
        sync_folder(&self.parent)?;
        Entry::of_open(open, &self.path)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        match unlinkat(&self.content.staging, &self.staged, AtFlags::empty()) {
            // It has its name.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => tracing::warn!(%error, "could not remove a staged file"),
        }
    }
}
