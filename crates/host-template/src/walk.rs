//! Which files of a tree of the host are private.
//!
//! Inside, root owns what root owns outside, so a file that only root may read here would be
//! readable there. Everything that "others" may not read is therefore hidden.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, openat, statat};

use crate::{Result, credentials, error::At};

/// Readable by everybody, and yet the usual places for tokens. Hidden when they hold any.
const CONFIGURATION: [&str; 6] = [
    "etc/npmrc",
    "etc/gitconfig",
    "local/etc/npmrc",
    "local/etc/gitconfig",
    "local/etc/pip.conf",
    "local/etc/wgetrc",
];

#[derive(Debug, Default)]
pub(crate) struct WalkResult {
    /// Relative to the tree; nothing below a hidden directory is listed.
    pub(crate) hidden: Vec<PathBuf>,
    /// Every directory that was looked into, relative to the tree, with its times.
    pub(crate) directories: Vec<(PathBuf, Times)>,
}

/// When a directory's entries and its own mode changed last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Times(pub(crate) [i64; 4]);

impl Times {
    pub(crate) fn of(stat: &Stat) -> Self {
        #[expect(clippy::cast_possible_wrap, reason = "nanoseconds are below 10^9")]
        Self([
            stat.st_mtime,
            stat.st_mtime_nsec as i64,
            stat.st_ctime,
            stat.st_ctime_nsec as i64,
        ])
    }
}

/// Looks at all of `tree` on its own file system, level by level with a few threads.
pub(crate) fn walk(tree: &Path, always_hidden: &[PathBuf]) -> Result<WalkResult> {
    let threads = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(4);
    let device = statat(CWD, tree, AtFlags::empty())
        .at("look at", tree)?
        .st_dev;
    let mut walk_result = WalkResult::default();
    let mut level = vec![PathBuf::new()];
    while !level.is_empty() {
        let share = level.len().div_ceil(threads);
        let look = |part: &[PathBuf]| -> Result<(WalkResult, Vec<PathBuf>)> {
            let mut result = (WalkResult::default(), Vec::new());
            for path in part {
                look_into(tree, path, device, always_hidden, &mut result)?;
            }
            Ok(result)
        };
        let results = std::thread::scope(|scope| {
            let running: Vec<_> = level
                .chunks(share)
                .map(|part| scope.spawn(move || look(part)))
                .collect();
            running
                .into_iter()
                .map(std::thread::ScopedJoinHandle::join)
                .collect::<Vec<_>>()
        });
        level = Vec::new();
        for result in results {
            let (found, next) = match result {
                Ok(result) => result?,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            walk_result.hidden.extend(found.hidden);
            walk_result.directories.extend(found.directories);
            level.extend(next);
        }
    }
    walk_result
        .hidden
        .extend(CONFIGURATION.iter().map(PathBuf::from).filter(|path| {
            std::fs::read(tree.join(path)).is_ok_and(|bytes| credentials::has_any(&bytes))
        }));
    walk_result.hidden.sort_unstable();
    walk_result.hidden.dedup();
    Ok(walk_result)
}

fn look_into(
    tree: &Path,
    path: &Path,
    device: u64,
    always_hidden: &[PathBuf],
    (walk_result, next): &mut (WalkResult, Vec<PathBuf>),
) -> Result<()> {
    let full = if path.as_os_str().is_empty() {
        tree.to_owned()
    } else {
        tree.join(path)
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = match openat(CWD, &full, flags, Mode::empty()) {
        // Taken away meanwhile.
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(()),
        other => other.at("open", &full)?,
    };
    let times = Times::of(&rustix::fs::fstat(&fd).at("look at", &full)?);
    walk_result.directories.push((path.to_owned(), times));
    let mut entries = Dir::new(fd).at("list", &full)?;
    while let Some(entry) = entries.read() {
        let entry = entry.at("list", &full)?;
        let name = entry.file_name();
        if name == c"." || name == c".." || entry.file_type() == FileType::Symlink {
            continue;
        }
        let stat = match statat(
            entries.fd().at("list", &full)?,
            name,
            AtFlags::SYMLINK_NOFOLLOW,
        ) {
            Err(rustix::io::Errno::NOENT) => continue,
            other => other.at("look into", &full)?,
        };
        let below = path.join(OsStr::from_bytes(name.to_bytes()));
        let kind = FileType::from_raw_mode(stat.st_mode);
        let for_everybody = match kind {
            FileType::Symlink => true,
            FileType::RegularFile => stat.st_mode & 0o004 != 0,
            FileType::Directory => stat.st_mode & 0o005 == 0o005,
            _ => false,
        };
        // Another file system (a mount, a btrfs subvolume) is not looked into, so not shown either.
        if !for_everybody || stat.st_dev != device || always_hidden.contains(&below) {
            walk_result.hidden.push(below);
        } else if kind == FileType::Directory {
            next.push(below);
        }
    }
    Ok(())
}
