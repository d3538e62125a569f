//! The directories that one watch covers, and how the kernel's events read as E2B's.

use std::{
    collections::{HashMap, HashSet},
    ffi::OsStr,
    io,
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags},
    io::Errno,
};

use crate::proto::filesystem::{CHMOD, CREATE, REMOVE, RENAME, WRITE};

/// One read takes at most this much, so that a storm cannot hold the event loop or its memory.
const MAX_BATCH: usize = 4_096;
/// What the event name of the watched directory itself is.
const ROOT_NAME: &str = ".";

pub(crate) struct Tree {
    inotify: OwnedFd,
    root: PathBuf,
    recursive: bool,
    /// Paths relative to the root; the root's own is empty.
    directories: HashMap<i32, PathBuf>,
    more: bool,
}

impl Tree {
    /// Walks the whole tree when recursive: not for the event loop.
    pub(crate) fn new(root: PathBuf, recursive: bool) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let mut tree = Self {
            inotify,
            root,
            recursive,
            directories: HashMap::new(),
            more: false,
        };
        tree.watch(Path::new(""))?;
        if recursive {
            tree.watch_below(Path::new(""), &mut |_, _| {})?;
        }
        Ok(tree)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Whether the last read stopped before the end of the queue.
    pub(crate) fn has_more(&self) -> bool {
        self.more
    }

    /// The events that wait, as (relative name, type). Never blocks.
    pub(crate) fn read(&mut self) -> Vec<(String, i32)> {
        let mut found = Vec::new();
        // Files of a new directory are found by looking; the kernel may report them as well.
        let mut seen: HashSet<PathBuf> = HashSet::new();
        let mut buffer = [MaybeUninit::uninit(); 4096];
        while found.len() < MAX_BATCH {
            let mut raw = Vec::new();
            {
                let mut reader = inotify::Reader::new(self.inotify.as_fd(), &mut buffer);
                loop {
                    match reader.next() {
                        Ok(event) => raw.push((
                            event.wd(),
                            event.events(),
                            event
                                .file_name()
                                .map(|n| OsStr::from_bytes(n.to_bytes()).to_owned()),
                        )),
                        Err(Errno::INTR) => continue,
                        Err(_) => break,
                    }
                    if reader.is_buffer_empty() {
                        break;
                    }
                }
            }
            if raw.is_empty() {
                break;
            }
            for (wd, flags, name) in raw {
                self.translate(wd, flags, name.as_deref(), &mut seen, &mut found);
            }
        }
        self.more = found.len() >= MAX_BATCH;
        found
    }

    fn translate(
        &mut self,
        wd: i32,
        flags: ReadFlags,
        name: Option<&OsStr>,
        seen: &mut HashSet<PathBuf>,
        found: &mut Vec<(String, i32)>,
    ) {
        if flags.contains(ReadFlags::IGNORED) {
            self.directories.remove(&wd);
            return;
        }
        let Some(directory) = self.directories.get(&wd) else {
            return;
        };
        let path = match name {
            Some(name) => directory.join(name),
            // About the directory itself: its parent, when watched, reports that too.
            None if directory.as_os_str().is_empty() => PathBuf::from(ROOT_NAME),
            None => return,
        };
        let created = flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO);
        let shown = path.to_string_lossy().into_owned();
        let mut emit = |set: bool, kind| {
            if set {
                found.push((shown.clone(), kind));
            }
        };
        emit(created && !seen.remove(&path), CREATE);
        emit(
            flags.intersects(ReadFlags::MOVED_FROM | ReadFlags::MOVE_SELF),
            RENAME,
        );
        emit(flags.contains(ReadFlags::ATTRIB), CHMOD);
        emit(flags.contains(ReadFlags::MODIFY), WRITE);
        emit(
            flags.intersects(ReadFlags::DELETE | ReadFlags::DELETE_SELF),
            REMOVE,
        );

        if !self.recursive || !flags.contains(ReadFlags::ISDIR) {
            return;
        }
        if flags.contains(ReadFlags::MOVED_FROM) {
            self.unwatch(&path);
        } else if created && self.watch(&path).is_ok() {
            // What was moved in was there before; what is in a new directory is new.
            let fresh = flags.contains(ReadFlags::CREATE);
            let mut report = |path: &Path, written: bool| {
                if fresh && seen.insert(path.to_owned()) {
                    let shown = path.to_string_lossy().into_owned();
                    found.push((shown.clone(), CREATE));
                    if written {
                        found.push((shown, WRITE));
                    }
                }
            };
            let _vanished = self.watch_below(&path, &mut report);
        }
    }

    fn watch(&mut self, relative: &Path) -> io::Result<()> {
        let flags = WatchFlags::CREATE
            | WatchFlags::MODIFY
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVE_SELF
            | WatchFlags::ATTRIB
            | WatchFlags::ONLYDIR;
        let below_root = !relative.as_os_str().is_empty();
        // The root may be a link; a link below it leads elsewhere.
        let flags = if below_root {
            flags | WatchFlags::DONT_FOLLOW
        } else {
            flags
        };
        let wd = inotify::add_watch(&self.inotify, self.root.join(relative), flags)?;
        self.directories.insert(wd, relative.to_owned());
        Ok(())
    }

    /// Watches every directory below and reports each entry, with whether it is a file with content.
    fn watch_below(
        &mut self,
        relative: &Path,
        report: &mut impl FnMut(&Path, bool),
    ) -> io::Result<()> {
        let mut waiting = vec![relative.to_owned()];
        while let Some(directory) = waiting.pop() {
            // It may have vanished meanwhile; its own removal is reported.
            let Ok(children) = std::fs::read_dir(self.root.join(&directory)) else {
                continue;
            };
            for child in children.filter_map(Result::ok) {
                let path = directory.join(child.file_name());
                let Ok(found) = child.metadata() else {
                    continue;
                };
                report(&path, found.is_file() && found.len() > 0);
                if found.is_dir() {
                    match self.watch(&path) {
                        Ok(()) => waiting.push(path),
                        Err(e) if e.raw_os_error() == Some(libc::ENOSPC) => return Err(e),
                        Err(_) => {}
                    }
                }
            }
        }
        Ok(())
    }

    fn unwatch(&mut self, relative: &Path) {
        let gone: Vec<i32> = self
            .directories
            .iter()
            .filter(|(_, path)| path.starts_with(relative))
            .map(|(wd, _)| *wd)
            .collect();
        for wd in gone {
            let _ended = inotify::remove_watch(&self.inotify, wd);
            self.directories.remove(&wd);
        }
    }
}

impl AsFd for Tree {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

#[cfg(test)]
mod tests;
