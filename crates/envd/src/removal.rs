//! Removes a directory tree, however deep, wide or lively it is.
//!
//! Programs inside make trees deeper than any path is long and than any stack. So the walk has no
//! recursion, names everything relative to one open directory, and goes back up through `..`. A
//! directory that is moved meanwhile would lead it astray: whoever comes up checks where it is.

use std::{
    ffi::CString,
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::Path,
    time::{Duration, Instant},
};

use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fstat, openat, unlinkat},
    io::Errno,
};

/// Somebody may fill the tree as fast as it is emptied.
const TIMEOUT: Duration = Duration::from_mins(5);
/// How many subdirectories are noted before the first of them is entered.
const NOTED: usize = 256;

pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    if ends_in_dots(path) {
        // The directory itself could not be removed, so its content is left alone as well.
        return Err(Errno::INVAL.into());
    }
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let top = match enter(CWD, path) {
            Ok(top) => top,
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        empty(top, deadline)?;
        match unlinkat(CWD, path, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTEMPTY) => in_time(deadline)?,
            Err(error) => return Err(error.into()),
        }
    }
}

/// A directory on the way down.
struct Level {
    directory: (u64, u64),
    /// Those of its subdirectories that have content. The last one is where the walk is.
    subdirectories: Vec<CString>,
}

fn empty(top: OwnedFd, deadline: Instant) -> io::Result<()> {
    let mut at = top;
    let mut above: Vec<Level> = Vec::new();
    let mut here = look(&at, deadline)?;
    loop {
        in_time(deadline)?;
        if let Some(name) = here.subdirectories.last() {
            match enter(&at, name.as_c_str()) {
                Ok(below) => {
                    let entered = look(&below, deadline)?;
                    above.push(std::mem::replace(&mut here, entered));
                    at = below;
                }
                // Gone, or something else by now, which the next look finds.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                    here.subdirectories.pop();
                    if here.subdirectories.is_empty() {
                        here = look(&at, deadline)?;
                    }
                }
                Err(error) => return Err(error.into()),
            }
            continue;
        }
        let Some(level) = above.pop() else {
            return Ok(());
        };
        at = enter(&at, c"..")?;
        here = level;
        if identity(&at)? != here.directory {
            return Err(io::Error::other(
                "a directory was moved while it was removed",
            ));
        }
        if let Some(name) = here.subdirectories.last()
            && discard(&at, name, true)? == Left::Nothing
        {
            here.subdirectories.pop();
        }
        // There may have been more of them than were noted.
        if here.subdirectories.is_empty() {
            here = look(&at, deadline)?;
        }
    }
}

/// Removes what can be removed at once and notes the rest.
fn look(directory: &OwnedFd, deadline: Instant) -> io::Result<Level> {
    let mut level = Level {
        directory: identity(directory)?,
        subdirectories: Vec::new(),
    };
    for entry in Dir::read_from(directory)? {
        in_time(deadline)?;
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let is_directory = entry.file_type() == FileType::Directory;
        if discard(directory, name, is_directory)? == Left::Content {
            level.subdirectories.push(name.to_owned());
            if level.subdirectories.len() >= NOTED {
                break;
            }
        }
    }
    Ok(level)
}

#[derive(PartialEq)]
enum Left {
    Nothing,
    Content,
}

fn discard(parent: &OwnedFd, name: &std::ffi::CStr, is_directory: bool) -> io::Result<Left> {
    let remove = |flags| unlinkat(parent, name, flags);
    let result = if is_directory {
        remove(AtFlags::REMOVEDIR)
    } else {
        match remove(AtFlags::empty()) {
            Err(Errno::ISDIR) => remove(AtFlags::REMOVEDIR),
            other => other,
        }
    };
    match result {
        Ok(()) | Err(Errno::NOENT) => Ok(Left::Nothing),
        // Was a directory a moment ago.
        Err(Errno::NOTDIR) => remove(AtFlags::empty())
            .map(|()| Left::Nothing)
            .map_err(Into::into),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(Left::Content),
        Err(error) => Err(error.into()),
    }
}

fn enter(
    parent: impl std::os::fd::AsFd,
    name: impl rustix::path::Arg,
) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

fn identity(directory: &OwnedFd) -> io::Result<(u64, u64)> {
    let found = fstat(directory)?;
    Ok((found.st_dev, found.st_ino))
}

fn in_time(deadline: Instant) -> io::Result<()> {
    if Instant::now() < deadline {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::TimedOut,
        "it is too large, or filled as fast as it is emptied: what is left can be removed again",
    ))
}

fn ends_in_dots(path: &Path) -> bool {
    let text = path.as_os_str().as_bytes();
    let last = text
        .rsplit(|byte| *byte == b'/')
        .find(|component| !component.is_empty());
    matches!(last, Some(b"." | b".."))
}

/// A chain of directories `d` below `root`, as deep as a program inside can make it.
#[cfg(test)]
pub(crate) fn deep_tree(root: &Path, depth: usize) {
    let mut at = enter(CWD, root).unwrap();
    for _ in 0..depth {
        rustix::fs::mkdirat(&at, c"d", Mode::RWXU).unwrap();
        at = enter(&at, c"d").unwrap();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        sync::atomic::{AtomicBool, Ordering},
    };

    use super::*;

    #[test]
    fn a_tree_deeper_than_any_path_or_stack_goes() {
        let root = tempfile::tempdir().unwrap();
        deep_tree(root.path(), 5_000);
        let path = root.path().join("d");
        std::thread::Builder::new()
            .stack_size(64 << 10)
            .spawn(move || remove_tree(&path))
            .unwrap()
            .join()
            .unwrap()
            .unwrap();
        assert!(!root.path().join("d").exists());
    }

    #[test]
    fn a_wide_tree_with_links_goes_and_what_they_point_to_stays() {
        let root = tempfile::tempdir().unwrap();
        let (tree, kept) = (root.path().join("tree"), root.path().join("kept"));
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "x").unwrap();
        for n in 0..=NOTED * 2 {
            let directory = tree.join(n.to_string());
            fs::create_dir_all(directory.join("empty")).unwrap();
            fs::write(directory.join("file"), "x").unwrap();
            std::os::unix::fs::symlink(&kept, directory.join("link")).unwrap();
        }
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
        assert!(kept.join("file").exists());
    }

    #[test]
    fn what_is_filled_meanwhile_goes_once_the_filling_stops() {
        let root = tempfile::tempdir().unwrap();
        let tree = root.path().join("tree");
        fs::create_dir_all(tree.join("a/b")).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..2_000 {
                    let _removed = fs::create_dir_all(tree.join(format!("a/b/{n}/x")));
                }
                stop.store(true, Ordering::Relaxed);
            });
            while !stop.load(Ordering::Relaxed) {
                remove_tree(&tree).unwrap();
            }
        });
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
    }

    #[test]
    fn a_directory_that_cannot_itself_be_removed_keeps_its_content() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("f"), "").unwrap();
        for end in [".", "./", "d/..", "..//"] {
            assert!(remove_tree(&root.path().join(end)).is_err(), "{end}");
        }
        assert!(root.path().join("f").exists());
    }

    #[test]
    fn what_is_gone_is_gone() {
        let root = tempfile::tempdir().unwrap();
        remove_tree(&root.path().join("never")).unwrap();
    }
}
