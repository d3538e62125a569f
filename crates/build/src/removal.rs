//! Removing untrusted directory trees.

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, renameat, unlinkat};

/// Directories that are open at a time on the way down.
const DEEPEST: usize = 64;

/// Removes a directory with everything in it; idempotent, blocking. Links are never followed.
///
/// Depth has no limit: what lies too deep is moved up to the top before it is emptied. A tree of a
/// hundred thousand levels would end a recursive walk, and the server with it.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    let top = match open_directory(CWD, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    // No name that is in the tree already.
    let prefix = format!(".gone-{}", uuid::Uuid::new_v4());
    let mut moved = 0_u64;
    let mut waiting = empty(&top)?;
    while let Some(name) = waiting.pop() {
        let directory = open_directory(top.as_fd(), &*name)?;
        let inner = empty(&directory)?;
        // Directories on the way down: each with its own name and what is still in it.
        let mut way = vec![(directory, name, inner)];
        loop {
            let depth = way.len();
            let Some((directory, name, inner)) = way.last_mut() else {
                break;
            };
            if let Some(next) = inner.pop() {
                if depth < DEEPEST {
                    let below = open_directory(directory.as_fd(), &*next)?;
                    let inner = empty(&below)?;
                    way.push((below, next, inner));
                } else {
                    let unique = CString::new(format!("{prefix}-{moved}"))?;
                    moved += 1;
                    renameat(&*directory, &*next, &top, &*unique)?;
                    waiting.push(unique);
                }
                continue;
            }
            let name = std::mem::take(name);
            way.pop();
            let parent = way.last().map_or(&top, |(parent, ..)| parent);
            unlinkat(parent, &*name, AtFlags::REMOVEDIR)?;
        }
    }
    drop(top);
    match std::fs::remove_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn open_directory(at: BorrowedFd<'_>, path: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(at, path, flags, Mode::empty())?)
}

/// Removes the files of a directory and returns the directories in it.
fn empty(directory: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut directories = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name: &CStr = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        match entry.file_type() {
            FileType::Directory => directories.push(name.to_owned()),
            FileType::Unknown => match unlinkat(directory, name, AtFlags::empty()) {
                Err(rustix::io::Errno::ISDIR) => directories.push(name.to_owned()),
                other => other?,
            },
            _ => unlinkat(directory, name, AtFlags::empty())?,
        }
    }
    Ok(directories)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_links_and_trees_go_and_what_links_point_to_stays() {
        let folder = tempfile::tempdir().unwrap();
        let outside = folder.path().join("outside");
        fs_err::create_dir(&outside).unwrap();
        fs_err::write(outside.join("file"), "").unwrap();
        let tree = folder.path().join("tree");
        fs_err::create_dir_all(tree.join("a/b/c")).unwrap();
        fs_err::create_dir_all(tree.join("a/b2/a")).unwrap();
        fs_err::write(tree.join("a/b/c/file"), "").unwrap();
        fs_err::os::unix::fs::symlink(&outside, tree.join("a/b/link")).unwrap();
        remove_tree(&tree).unwrap();
        remove_tree(&tree).unwrap();
        assert!(!tree.exists() && outside.join("file").exists());
    }

    #[test]
    fn a_very_deep_tree_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        fs_err::create_dir(&tree).unwrap();
        let mut at = open_directory(CWD, &tree).unwrap();
        for _ in 0..5_000 {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = open_directory(at.as_fd(), "d").unwrap();
        }
        drop(at);
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
    }
}
