//! Removing whole trees, however deep or busy they are.
//!
//! The tree is renamed into a trash folder first, atomically and out of sight. There, each folder's
//! folders are moved up into the trash folder as well, so that no path gets long and no stack deep.

use std::{ffi::CString, os::fd::OwnedFd, sync::Arc};

use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags, RenameFlags, mkdirat, openat, renameat_with, unlinkat},
    io::Errno,
};
use uuid::Uuid;

use super::Content;
use crate::{Error, Result, path::CleanPath};

/// A sandbox may go on writing into a folder that it has open while it is being emptied.
const TRIES: u32 = 16;

impl Content {
    /// A file, a link, or a directory with all that is in it.
    pub fn remove(&self, path: &str) -> Result<()> {
        let path = CleanPath::parse(path)?;
        let Some((parent, name)) = path.split() else {
            return Err(Error::Root);
        };
        let parent = self.find_directory(&parent)?;
        let trash = self.create_trash()?;
        let moved = renameat_with(&parent, name, &trash.open, c"0", RenameFlags::NOREPLACE)
            .map_err(Error::errno("remove the path"));
        let emptied = trash.empty();
        self.remove_trash(&trash);
        moved.and(emptied)
    }

    /// What uploads and deletions of an earlier server left, in the background: it may be much.
    pub(crate) fn clear_staging(self: &Arc<Self>) -> Result<()> {
        let names = entries_of(&self.open_staging()?)?;
        if names.is_empty() {
            return Ok(());
        }
        let content = Arc::clone(self);
        std::thread::spawn(move || {
            if let Err(error) = content.clear(&names) {
                tracing::warn!(%error, "could not clear a volume's staging folder");
            }
        });
        Ok(())
    }

    fn clear(&self, names: &[CString]) -> Result<()> {
        let trash = self.create_trash()?;
        for (number, name) in names.iter().enumerate() {
            let place = format!("old-{number}");
            renameat_with(
                &self.staging,
                name,
                &trash.open,
                place,
                RenameFlags::NOREPLACE,
            )
            .map_err(Error::errno("move away what was left"))?;
        }
        let emptied = trash.empty();
        self.remove_trash(&trash);
        emptied
    }

    fn open_staging(&self) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(&self.staging, c".", flags, Mode::empty())
            .map_err(Error::errno("open the staging folder"))
    }

    fn create_trash(&self) -> Result<TrashDir> {
        let name = Uuid::new_v4().to_string();
        mkdirat(&self.staging, &name, Mode::RWXU).map_err(Error::errno("prepare the removal"))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = openat(&self.staging, &name, flags, Mode::empty())
            .map_err(Error::errno("prepare the removal"))?;
        Ok(TrashDir { name, open })
    }

    fn remove_trash(&self, trash: &TrashDir) {
        if let Err(error) = unlinkat(&self.staging, &trash.name, AtFlags::REMOVEDIR) {
            // The next mount tries again.
            tracing::warn!(%error, "could not remove all of a tree");
        }
    }
}

struct TrashDir {
    name: String,
    open: OwnedFd,
}

impl TrashDir {
    fn empty(&self) -> Result<()> {
        let mut moved = 0_u64;
        let mut busy = 0;
        loop {
            let names = entries_of(&self.open)?;
            if names.is_empty() {
                return Ok(());
            }
            for name in names {
                if !self.remove_one(&name, &mut moved)? {
                    busy += 1;
                }
            }
            if busy > TRIES {
                return Err(Error::Exists);
            }
        }
    }

    /// `false`: a folder was filled while it was emptied.
    fn remove_one(&self, name: &CString, moved: &mut u64) -> Result<bool> {
        let failed = || Error::errno("remove a file");
        match unlinkat(&self.open, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(true),
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(error) => return Err(failed()(error)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = openat(&self.open, name, flags, Mode::empty()).map_err(failed())?;
        for inner in Dir::read_from(&folder).map_err(failed())? {
            let inner = inner.map_err(failed())?;
            let inner = inner.file_name();
            if matches!(inner.to_bytes(), b"." | b"..") {
                continue;
            }
            match unlinkat(&folder, inner, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => continue,
                Err(Errno::ISDIR | Errno::PERM) => {}
                Err(error) => return Err(failed()(error)),
            }
            match unlinkat(&folder, inner, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => continue,
                Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                Err(error) => return Err(failed()(error)),
            }
            *moved += 1;
            let place = format!("up-{moved}");
            renameat_with(&folder, inner, &self.open, place, RenameFlags::NOREPLACE)
                .map_err(failed())?;
        }
        match unlinkat(&self.open, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
            Err(error) => Err(failed()(error)),
        }
    }
}

/// A bounded part of them: the caller asks again.
fn entries_of(folder: &OwnedFd) -> Result<Vec<CString>> {
    const PART: usize = 4096;
    let mut names = Vec::new();
    let failed = || Error::errno("read a directory");
    for entry in Dir::read_from(folder).map_err(failed())? {
        let name = entry.map_err(failed())?.file_name().to_owned();
        if !matches!(name.as_bytes(), b"." | b"..") {
            names.push(name);
        }
        if names.len() == PART {
            break;
        }
    }
    Ok(names)
}
