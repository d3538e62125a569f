//! Files and folders that are on the disk when the call returns, and their quick siblings.
//!
//! A file that was written and renamed is whole for everybody on this machine, but after a power
//! cut it may be empty, or not there: its content and its name are each on the disk only after an
//! fsync of their own. What an answer promises is written with [`write`], [`rename`], [`remove`] and
//! [`make_folder`]. [`write_soon`] leaves the disk to the kernel (some 30 s): for what must be quick
//! and may be reported as lost. Everything here blocks.

use std::{
    collections::HashSet,
    ffi::OsString,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use fs_err::{self as fs, os::unix::fs::OpenOptionsExt};

static SYNCS: AtomicU64 = AtomicU64::new(0);
static LOCKED_PATHS: Mutex<Option<HashSet<PathBuf>>> = Mutex::new(None);
static UNLOCKED: Condvar = Condvar::new();

/// How often this process has waited for the disk, here.
pub fn syncs() -> u64 {
    SYNCS.load(Ordering::Relaxed)
}

/// Replaces the file in one step, for good.
pub fn write(path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    replace(path, mode, content, sync)?;
    sync_folder_of(path)
}

/// Replaces the file in one step. After a power cut it may be the old one, empty, or not there.
pub fn write_soon(path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    replace(path, mode, content, |_| Ok(()))
}

/// Moves a file or folder within one file system, for good. What is in it is not looked at.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync_folder_of(to)?;
    if from.parent() == to.parent() {
        Ok(())
    } else {
        sync_folder_of(from)
    }
}

/// Removes a file for good. None is fine too: an earlier removal may not be on the disk yet.
pub fn remove(path: &Path) -> io::Result<()> {
    remove_if_there(path)?;
    sync_folder_of(path)
}

/// Makes a folder and those above it, for good. One that is there stays as it is.
pub fn make_folder(path: &Path, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
        make_folder(above, mode)?;
    }
    match std::fs::DirBuilder::new().mode(mode).create(path) {
        // Somebody else was first.
        Err(_) if path.is_dir() => {}
        other => other?,
    }
    sync_folder_of(path)
}

/// The content of a file, and what it takes to find it from its name's folder.
pub fn sync_file(path: &Path) -> io::Result<()> {
    sync(&fs::File::open(path)?)
}

/// As [`sync_file`], of one that need not be there.
pub fn sync_file_if_there(path: &Path) -> io::Result<()> {
    match sync_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Which names a folder has.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    sync_file(path)
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => sync_folder(folder),
        _ => sync_folder(Path::new(".")),
    }
}

fn sync(file: &fs::File) -> io::Result<()> {
    SYNCS.fetch_add(1, Ordering::Relaxed);
    file.sync_all()
}

fn replace(
    path: &Path,
    mode: u32,
    content: &[u8],
    finish: impl FnOnce(&fs::File) -> io::Result<()>,
) -> io::Result<()> {
    let _lock = PathLock::acquire(path);
    let mut unfinished = OsString::from(path);
    unfinished.push(".new");
    let unfinished = PathBuf::from(unfinished);
    let written = write_unfinished(&unfinished, mode, content)
        .and_then(|file| finish(&file))
        .and_then(|()| fs::rename(&unfinished, path));
    if written.is_err() {
        // The error says more than what a removal could add to it.
        remove_if_there(&unfinished).ok();
    }
    written
}

fn write_unfinished(path: &Path, mode: u32, content: &[u8]) -> io::Result<fs::File> {
    let open = || {
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
    };
    let mut file = match open() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // Left by a crash, with whatever mode.
            remove_if_there(path)?;
            open()?
        }
        other => other?,
    };
    if mode != 0o600 {
        // Not left to the umask.
        file.set_permissions(std::fs::Permissions::from_mode(mode))?;
    }
    file.write_all(content)?;
    Ok(file)
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// A lock on one path: of two writers of one file each writes its own content whole.
struct PathLock<'a>(&'a Path);

impl<'a> PathLock<'a> {
    fn acquire(path: &'a Path) -> Self {
        let mut locked = LOCKED_PATHS.lock().unwrap_or_else(PoisonError::into_inner);
        while !locked.get_or_insert_default().insert(path.to_owned()) {
            locked = UNLOCKED
                .wait(locked)
                .unwrap_or_else(PoisonError::into_inner);
        }
        Self(path)
    }
}

impl Drop for PathLock<'_> {
    fn drop(&mut self) {
        let mut locked = LOCKED_PATHS.lock().unwrap_or_else(PoisonError::into_inner);
        locked.get_or_insert_default().remove(self.0);
        drop(locked);
        UNLOCKED.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Others of this process count too.
    static ALONE: Mutex<()> = Mutex::new(());

    fn syncs_of(work: impl FnOnce() -> io::Result<()>) -> u64 {
        let before = syncs();
        work().unwrap();
        syncs() - before
    }

    #[test]
    fn what_is_for_good_waits_for_the_disk_and_what_is_quick_does_not() {
        let _alone = ALONE.lock();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        assert_eq!(syncs_of(|| write_soon(&path, 0o600, b"soon")), 0);
        // The file and its folder.
        assert_eq!(syncs_of(|| write(&path, 0o600, b"for good")), 2);
        let other = folder.path().join("other");
        assert_eq!(syncs_of(|| rename(&path, &other)), 1);
        let below = folder.path().join("a/b");
        assert_eq!(syncs_of(|| make_folder(&below, 0o700)), 2);
        assert_eq!(syncs_of(|| make_folder(&below, 0o700)), 0);
        assert_eq!(syncs_of(|| rename(&other, &below.join("file"))), 2);
        assert_eq!(syncs_of(|| remove(&below.join("file"))), 1);
    }

    #[test]
    fn a_file_is_replaced_whole_with_its_mode_and_leaves_nothing_beside_it() {
        let _alone = ALONE.lock();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(
            folder.path().join("file.new"),
            "left by a crash, and longer",
        )
        .unwrap();
        write(&path, 0o644, b"one").unwrap();
        write_soon(&path, 0o600, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::create_dir(folder.path().join("taken")).unwrap();
        assert!(write(&folder.path().join("taken"), 0o600, b"three").is_err());
        let names = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(names, 2, "the file and what was in the way");
    }

    #[test]
    fn writers_of_one_file_take_turns() {
        let _alone = ALONE.lock();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::thread::scope(|scope| {
            for writer in 0..8_u8 {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..50 {
                        write_soon(path, 0o600, &[writer; 5000]).unwrap();
                    }
                });
            }
        });
        let content = std::fs::read(&path).unwrap();
        assert!(content.len() == 5000 && content.iter().all(|byte| *byte == content[0]));
    }
}
