//! A folder to try things in, on the file system that the server will use; gone afterwards.
//!
//! Who was killed meanwhile leaves one. Other users may be able to write where it is, so a name proves
//! nothing: what is swept is a folder that only we can have made, that nobody holds, and it is emptied
//! through its descriptor, since its path may lead elsewhere by then.

use std::{
    fs::{File, Permissions},
    io,
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::{MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, FlockOperation, Mode, OFlags, flock, openat},
    process::geteuid,
};

const PREFIX: &str = ".soulbox-doctor-";
/// What follows the prefix.
const RANDOM: usize = 6;
/// The first thing in a scratch folder: what has it was made for nothing else.
const MARK: &str = ".scratch";
/// Somebody who sweeps may have been quicker than the lock.
const TRIES: usize = 5;

#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    /// Locked, so that nobody takes it for a killed one's.
    folder: File,
}

impl Scratch {
    /// Blocking. The error is for people.
    pub fn new(data_dir: &Path) -> Result<Self, String> {
        if data_dir.exists() && !data_dir.is_dir() {
            return Err(format!("{} is not a folder", data_dir.display()));
        }
        let near = nearest_folder(data_dir);
        Self::make(near).map_err(|error| format!("cannot write to {}: {error}", near.display()))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn make(near: &Path) -> io::Result<Self> {
        for _ in 0..TRIES {
            let path = tempfile::Builder::new()
                .prefix(PREFIX)
                .rand_bytes(RANDOM)
                .permissions(Permissions::from_mode(0o700))
                .tempdir_in(near)?
                .keep();
            let Some(folder) = open(CWD, &path, OFlags::DIRECTORY) else {
                // Not ours: nothing is left where it can be removed.
                std::fs::remove_dir(&path).ok();
                continue;
            };
            let scratch = Self { path, folder };
            // Removed, it has no name any more.
            if lock(&scratch.folder)? && scratch.folder.metadata()?.nlink() > 0 {
                File::create_new(scratch.path.join(MARK))?;
                return Ok(scratch);
            }
        }
        Err(io::Error::other("another program takes new folders away"))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Whoever comes next sweeps it.
        remove(&self.folder, &self.path).ok();
    }
}

/// The data folder, or where it will be made: on the same file system.
pub fn nearest_folder(data_dir: &Path) -> &Path {
    data_dir
        .ancestors()
        .find(|path| path.is_dir())
        .unwrap_or(Path::new("/"))
}

/// A folder that its maker did not live to remove. Held, so that nobody else sweeps it.
#[derive(Debug)]
pub struct Leftover {
    path: PathBuf,
    folder: File,
    /// Whether there is no doubt that it was made for nothing else.
    pub is_marked: bool,
}

/// What there may be of killed doctors and servers in this folder; empty ones are gone afterwards.
/// Blocking.
pub fn left_over(near: &Path) -> Vec<Leftover> {
    let Ok(entries) = std::fs::read_dir(near) else {
        return Vec::new();
    };
    let paths = entries.flatten().map(|entry| entry.path());
    paths.filter_map(Leftover::find).collect()
}

impl Leftover {
    fn find(path: PathBuf) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let random = name.strip_prefix(PREFIX)?;
        if random.len() != RANDOM || !random.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return None;
        }
        let folder = open(CWD, &path, OFlags::DIRECTORY)?;
        // `true`: nobody is at work there.
        if !lock(&folder).ok()? {
            return None;
        }
        if std::fs::remove_dir(&path).is_ok() {
            return None;
        }
        let mark = open(folder.as_fd(), Path::new(MARK), OFlags::empty());
        let is_marked = mark
            .and_then(|file| file.metadata().ok())
            .is_some_and(|file| file.is_file() && file.nlink() == 1);
        Some(Self {
            path,
            folder,
            is_marked,
        })
    }

    /// A file in it, if only we can have written it; by the names of the folders above, and its own.
    pub fn file(&self, names: &[&str]) -> Option<File> {
        let (name, folders) = names.split_last()?;
        let mut at = self.folder.try_clone().ok()?;
        for folder in folders {
            at = open(at.as_fd(), Path::new(folder), OFlags::DIRECTORY)?;
        }
        let file = open(at.as_fd(), Path::new(name), OFlags::empty())?;
        file.metadata().ok()?.is_file().then_some(file)
    }

    pub fn remove(self) -> io::Result<()> {
        remove(&self.folder, &self.path)
    }
}

/// Only what is ours and what nobody else may write to.
fn open(at: impl AsFd, path: &Path, more: OFlags) -> Option<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | more;
    let file: File = openat(at, path, flags, Mode::empty()).ok()?.into();
    let found = file.metadata().ok()?;
    (found.uid() == geteuid().as_raw() && found.mode() & 0o022 == 0).then_some(file)
}

/// `false`: somebody else has it.
fn lock(folder: &File) -> io::Result<bool> {
    match flock(folder, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The mark last: who is killed in the middle leaves something that can be swept.
fn remove(folder: &File, path: &Path) -> io::Result<()> {
    let inside = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    for entry in std::fs::read_dir(&inside)? {
        let entry = entry?;
        if entry.file_name() == MARK {
            continue;
        }
        if entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        } else {
            std::fs::remove_file(entry.path())?;
        }
    }
    match std::fs::remove_file(inside.join(MARK)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::fs::remove_dir(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    /// As a killed one leaves it.
    fn abandoned(near: &Path) -> PathBuf {
        let scratch = Scratch::new(near).unwrap();
        let path = scratch.path.clone();
        let Scratch { folder, .. } = &scratch;
        flock(folder, FlockOperation::Unlock).unwrap();
        // Without its end.
        std::mem::forget(scratch);
        path
    }

    fn names(near: &Path) -> usize {
        std::fs::read_dir(near).unwrap().count()
    }

    #[test]
    fn a_scratch_folder_goes_with_everything_in_it() {
        let near = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(&near.path().join("not/made/yet")).unwrap();
        assert_eq!(scratch.path().parent(), Some(near.path()));
        std::fs::create_dir_all(scratch.path().join("a/b")).unwrap();
        std::fs::write(scratch.path().join("a/b/c"), "").unwrap();
        symlink("/", scratch.path().join("link")).unwrap();
        drop(scratch);
        assert_eq!(names(near.path()), 0);
    }

    #[test]
    fn what_a_killed_one_left_is_found_whenever_it_was_killed() {
        let near = tempfile::tempdir().unwrap();
        // Before the mark, after it, and in the middle of the work.
        std::fs::create_dir(near.path().join(".soulbox-doctor-abcDE1")).unwrap();
        abandoned(near.path());
        std::fs::create_dir_all(abandoned(near.path()).join("trial/bin")).unwrap();
        let left = left_over(near.path());
        assert!(left.len() == 2 && left.iter().all(|each| each.is_marked));
        for each in left {
            each.remove().unwrap();
        }
        assert_eq!(names(near.path()), 0);
    }

    #[test]
    fn nothing_is_taken_from_somebody_at_work() {
        let near = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(near.path()).unwrap();
        assert!(left_over(near.path()).is_empty());
        assert!(scratch.path().join(MARK).exists());
        // Between the making of the folder and its mark, too.
        let path = near.path().join(".soulbox-doctor-abcDE1");
        std::fs::create_dir(&path).unwrap();
        let early = File::open(&path).unwrap();
        assert!(lock(&early).unwrap());
        assert!(left_over(near.path()).is_empty() && path.exists());
    }

    #[test]
    fn what_others_may_have_made_is_not_swept() {
        let near = tempfile::tempdir().unwrap();
        let real = abandoned(near.path());
        let put = |name: &str| {
            let path = near.path().join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::write(path.join(MARK), "").unwrap();
            path
        };
        // Of another name, open to others, a link, somebody else's, and a mark that has two names.
        let others_name = put(".soulbox-doctor-something");
        let open = put(".soulbox-doctor-aaaaaa");
        std::fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        let elsewhere = put("elsewhere");
        symlink(&elsewhere, near.path().join(".soulbox-doctor-bbbbbb")).unwrap();
        let mut planted = vec![others_name, open, elsewhere];
        if geteuid().is_root() {
            let theirs = put(".soulbox-doctor-cccccc");
            chown(&theirs, Some(65_534), Some(65_534)).unwrap();
            planted.push(theirs);
        }
        let left = left_over(near.path());
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].path, real);
        let kept = |path: &PathBuf| path.join(MARK).exists();
        assert!(planted.iter().all(kept));

        // A folder of ours under such a name: there, but not marked.
        drop(left);
        let unmarked = put(".soulbox-doctor-dddddd");
        std::fs::write(unmarked.join("precious"), "").unwrap();
        std::fs::hard_link(unmarked.join(MARK), near.path().join("second")).unwrap();
        let left = left_over(near.path());
        let found = left.iter().find(|each| each.path == unmarked).unwrap();
        assert!(!found.is_marked);
    }

    #[test]
    fn a_folder_put_in_its_place_stays() {
        let near = tempfile::tempdir().unwrap();
        let path = abandoned(near.path());
        std::fs::write(path.join("inside"), "").unwrap();
        let left = left_over(near.path()).pop().unwrap();
        // Whoever may rename things here does so after we have looked.
        std::fs::rename(&path, near.path().join("moved")).unwrap();
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("precious"), "").unwrap();
        assert!(left.remove().is_err());
        assert!(path.join("precious").exists());
        assert_eq!(names(&near.path().join("moved")), 0);
    }

    #[test]
    fn files_inside_are_believed_only_where_nobody_else_can_write() {
        let near = tempfile::tempdir().unwrap();
        let path = abandoned(near.path());
        std::fs::create_dir(path.join("trial")).unwrap();
        std::fs::write(path.join("trial/instance.json"), "{}").unwrap();
        let left = left_over(near.path()).pop().unwrap();
        let names = ["trial", "instance.json"];
        assert!(left.file(&names).is_some());
        assert!(left.file(&["trial"]).is_none());
        std::fs::set_permissions(path.join("trial"), Permissions::from_mode(0o777)).unwrap();
        assert!(left.file(&names).is_none());
    }
}
