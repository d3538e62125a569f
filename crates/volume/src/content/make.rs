//! New folders. They are finished in the staging folder, where nobody interferes, and then moved.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, mkdirat, openat, renameat_with, unlinkat};
use uuid::Uuid;

use super::{Changes, Content, sync_folder};
use crate::{Entry, Error, Result, path::CleanPath};

const NEW_DIRECTORY: Changes = Changes {
    uid: Some(1000),
    gid: Some(1000),
    mode: Some(0o755),
};

impl Content {
    /// With `force` the directories above are made as well, and one that exists is fine.
    pub fn make_directory(&self, path: &str, changes: Changes, force: bool) -> Result<Entry> {
        let path = CleanPath::parse(path)?;
        if !force {
            let Some((parent, name)) = path.split() else {
                return Err(Error::Exists);
            };
            let parent = self.find_directory(&parent)?;
            self.make_one(&parent, name, changes)?;
            return Entry::of_open(self.look(&path)?, &path);
        }
        for step in path.parents_and_self() {
            match self.find_directory(&step) {
                Ok(_) => {}
                Err(Error::NotFound) => self.make_step(&step, changes)?,
                // The path itself is there, and is something else.
                Err(Error::NotADirectory) if step == path => return Err(Error::Exists),
                Err(error) => return Err(error),
            }
        }
        let made = self.find_directory(&path)?;
        Entry::of_open(made, &path)
    }

    fn make_step(&self, step: &CleanPath, changes: Changes) -> Result<()> {
        let Some((parent, name)) = step.split() else {
            return Ok(());
        };
        let parent = self.find_directory(&parent)?;
        match self.make_one(&parent, name, changes) {
            // Somebody else made it just now; whether it is a directory is seen next.
            Ok(()) | Err(Error::Exists) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn make_one(&self, parent: &OwnedFd, name: &str, changes: Changes) -> Result<()> {
        let staged = Uuid::new_v4().to_string();
        mkdirat(&self.staging, &staged, Mode::RWXU).map_err(Error::errno("make a directory"))?;
        let moved = self.finish_directory(&staged, changes).and_then(|()| {
            let flags = RenameFlags::NOREPLACE;
            renameat_with(&self.staging, &staged, parent, name, flags)
                .map_err(Error::errno("move the new directory to its place"))
        });
        if moved.is_err()
            && let Err(error) = unlinkat(&self.staging, &staged, AtFlags::REMOVEDIR)
        {
            tracing::warn!(%error, "could not remove a staged directory");
        }
        moved.and_then(|()| sync_folder(parent))
    }

    fn finish_directory(&self, staged: &str, changes: Changes) -> Result<()> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = openat(&self.staging, staged, flags, Mode::empty())
            .map_err(Error::errno("open the new directory"))?;
        changes.or(NEW_DIRECTORY).apply(&open)
    }
}
