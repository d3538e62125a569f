//! From what a client writes to a path in the sandbox, and safe ways to open and make things there.

use std::{
    fs::DirBuilder,
    io,
    os::{fd::OwnedFd, unix::fs::DirBuilderExt},
    path::{Component, Path, PathBuf},
};

use rustix::fs::{FileType, Mode, OFlags};

use crate::users::User;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum Error {
    #[error("the home of another user cannot be named with '~': write the whole path")]
    OtherHome,
    #[error("a path cannot hold a NUL character")]
    Nul,
}

/// Empty: the working directory; `~`: the user's home; relative: below the user's home.
pub(crate) fn resolve(path: &str, user: &User, workdir: &str) -> Result<PathBuf, Error> {
    if path.contains('\0') {
        return Err(Error::Nul);
    }
    if path.is_empty() {
        return if workdir.is_empty() {
            Ok(user.home.clone())
        } else {
            resolve(workdir, user, "")
        };
    }
    match path.strip_prefix('~') {
        Some("") => Ok(user.home.clone()),
        Some(rest) => match rest.strip_prefix('/') {
            Some(below) => Ok(clean(&user.home.join(below.trim_start_matches('/')))),
            None => Err(Error::OtherHome),
        },
        // An absolute path is taken as it is written.
        None if path.starts_with('/') => Ok(path.into()),
        None => Ok(clean(&user.home.join(path))),
    }
}

/// Without `.`, `..` and doubled slashes. By the letters only: links are not looked at.
fn clean(path: &Path) -> PathBuf {
    let mut cleaned = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                cleaned.pop();
            }
            Component::CurDir => {}
            other => cleaned.push(other),
        }
    }
    cleaned
}

/// The last component as clients expect it.
pub(crate) fn base_name(path: &Path) -> String {
    match path.file_name() {
        Some(name) => name.to_string_lossy().into_owned(),
        None => path.to_string_lossy().into_owned(),
    }
}

/// Makes missing directories (mode 0755, owned by the user); leaves existing ones as they are.
pub(crate) fn make_directories(path: &Path, user: &User) -> io::Result<()> {
    make_directories_of(path, user.uid, user.gid)
}

pub(crate) fn make_directories_of(path: &Path, uid: u32, gid: u32) -> io::Result<()> {
    let mut missing = Vec::new();
    let mut at = path;
    loop {
        match std::fs::metadata(at) {
            Ok(found) if found.is_dir() => break,
            Ok(_) => {
                let text = format!("path is a file: {}", at.display());
                return Err(io::Error::new(io::ErrorKind::NotADirectory, text));
            }
            // Where a part of the path is a file, that is met on the way up.
            Err(e) if is_absent(&e) => missing.push(at),
            Err(e) => return Err(e),
        }
        match at.parent() {
            Some(parent) => at = parent,
            None => break,
        }
    }
    for directory in missing.into_iter().rev() {
        match DirBuilder::new().mode(0o755).create(directory) {
            Ok(()) => std::os::unix::fs::chown(directory, Some(uid), Some(gid))?,
            // Somebody else was quicker.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn is_absent(error: &io::Error) -> bool {
    let absent = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    absent.contains(&error.kind())
}

/// Opens a file for reading without ever waiting for it (a FIFO's writer, a device), and refuses
/// what is not a regular file.
pub(crate) fn open_regular(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
    match kind {
        FileType::RegularFile => Ok(file),
        FileType::Directory => Err(io::ErrorKind::IsADirectory.into()),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        )),
    }
}

/// An error in the words that clients of E2B look for, which are Go's: `permission denied`.
pub(crate) fn told(error: &io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(number) => text
            .trim_end_matches(&format!(" (os error {number})"))
            .to_lowercase(),
        None => text,
    }
}

/// The disk is full, or the user's share of it.
pub(crate) fn is_out_of_space(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    fn user() -> User {
        User {
            name: "u".into(),
            uid: 1,
            gid: 1,
            home: "/home/u".into(),
            groups: vec![1],
        }
    }

    #[test]
    fn relative_paths_are_below_home_and_only_the_empty_one_is_the_workdir() {
        let resolve = |path| resolve(path, &user(), "/work").unwrap();
        assert_eq!(resolve(""), Path::new("/work"));
        assert_eq!(resolve("a/b"), Path::new("/home/u/a/b"));
        assert_eq!(resolve("./a//../b/"), Path::new("/home/u/b"));
        assert_eq!(resolve("../../../etc"), Path::new("/etc"));
        assert_eq!(resolve("/a/../b/").as_os_str(), "/a/../b/");
        assert_eq!(resolve("~"), Path::new("/home/u"));
        assert_eq!(resolve("~/x"), Path::new("/home/u/x"));
        assert_eq!(resolve("~//x"), Path::new("/home/u/x"));
        assert_eq!(resolve("/etc/hosts"), Path::new("/etc/hosts"));
    }

    #[test]
    fn without_a_workdir_the_empty_path_is_home() {
        assert_eq!(resolve("", &user(), "").unwrap(), Path::new("/home/u"));
    }

    #[test]
    fn another_users_home_is_an_error() {
        assert_eq!(resolve("~other/x", &user(), ""), Err(Error::OtherHome));
        assert_eq!(resolve("a\0b", &user(), ""), Err(Error::Nul));
    }
}
