//! The directories that one watch covers, and how the kernel's events read as E2B's.

use std::{
    collections::{HashMap, HashSet},
    ffi::OsStr,
    fs::ReadDir,
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
/// How many entries of new directories are looked at in one read, for the same reason, and at once.
const MAX_LOOKED_AT: usize = 4_096;
const GLANCE: usize = 512;
/// Opening a directory takes about as long as looking at this many entries.
const OPENING: usize = 16;
/// What one watch may cost: directories, and the text of their paths, which are long in deep trees.
const MAX_DIRECTORIES: usize = 65_536;
const MAX_TEXT: usize = 8 << 20;
/// What the event name of the watched directory itself is.
const ROOT_NAME: &str = ".";

pub(crate) struct Tree {
    inotify: OwnedFd,
    root: PathBuf,
    recursive: bool,
    /// Paths relative to the root; the root's own is empty.
    directories: HashMap<i32, PathBuf>,
    text: usize,
    /// Directories that are watched but whose content was not looked at yet, each with whether it
    /// is new: then so is what is in it. What was moved in was there before.
    unseen: Vec<(PathBuf, bool)>,
    /// The one that is being looked at. A single directory can hold millions of entries.
    current: Option<(PathBuf, bool, ReadDir)>,
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
            text: 0,
            unseen: Vec::new(),
            current: None,
            more: false,
        };
        tree.watch(Path::new(""))?;
        if recursive {
            tree.unseen.push((PathBuf::new(), false));
            while tree.has_unseen() {
                tree.look(&mut HashSet::new(), &mut Vec::new())?;
            }
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
        let mut looked_at = 0;
        while found.len() < MAX_BATCH && looked_at < MAX_LOOKED_AT {
            // Before the next events, so that each is about a directory that is known.
            if self.has_unseen() {
                // Too many: what is watched stays watched, the rest is left.
                if let Ok(entries) = self.look(&mut seen, &mut found) {
                    looked_at += entries + OPENING;
                } else {
                    (self.unseen, self.current) = (Vec::new(), None);
                }
                continue;
            }
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
        self.more = found.len() >= MAX_BATCH || looked_at >= MAX_LOOKED_AT;
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
            self.forget(wd);
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
            self.unseen.push((path, flags.contains(ReadFlags::CREATE)));
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
        let length = relative.as_os_str().len();
        if self.directories.len() >= MAX_DIRECTORIES || self.text + length > MAX_TEXT {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                "too many directories for one watch: watch a smaller tree",
            ));
        }
        let wd = inotify::add_watch(&self.inotify, self.root.join(relative), flags)?;
        // A directory that moved keeps its number.
        self.forget(wd);
        self.directories.insert(wd, relative.to_owned());
        self.text += length;
        Ok(())
    }

    fn forget(&mut self, wd: i32) {
        if let Some(path) = self.directories.remove(&wd) {
            self.text -= path.as_os_str().len();
        }
    }

    fn has_unseen(&self) -> bool {
        self.current.is_some() || !self.unseen.is_empty()
    }

    /// Looks at a few entries: watches the directories and reports what is new. Says how many.
    fn look(
        &mut self,
        seen: &mut HashSet<PathBuf>,
        found: &mut Vec<(String, i32)>,
    ) -> io::Result<usize> {
        let Some((directory, fresh, mut children)) = self.next_unseen() else {
            return Ok(0);
        };
        let mut glances = 0;
        for child in children.by_ref().take(GLANCE) {
            glances += 1;
            let Ok(child) = child else { continue };
            let path = directory.join(child.file_name());
            // It may have vanished meanwhile; its own removal is reported.
            let Ok(kind) = child.file_type() else {
                continue;
            };
            if fresh && seen.insert(path.clone()) {
                let shown = path.to_string_lossy().into_owned();
                found.push((shown.clone(), CREATE));
                if kind.is_file() && child.metadata().is_ok_and(|found| found.len() > 0) {
                    found.push((shown, WRITE));
                }
            }
            if kind.is_dir() {
                match self.watch(&path) {
                    Ok(()) => self.unseen.push((path, fresh)),
                    Err(e) if e.kind() == io::ErrorKind::StorageFull => return Err(e),
                    Err(_) => {}
                }
            }
        }
        if glances == GLANCE {
            self.current = Some((directory, fresh, children));
        }
        Ok(glances)
    }

    fn next_unseen(&mut self) -> Option<(PathBuf, bool, ReadDir)> {
        if let Some(current) = self.current.take() {
            return Some(current);
        }
        let (directory, fresh) = self.unseen.pop()?;
        let children = std::fs::read_dir(self.root.join(&directory)).ok()?;
        Some((directory, fresh, children))
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
            self.forget(wd);
        }
        self.unseen.retain(|(path, _)| !path.starts_with(relative));
        self.current
            .take_if(|(path, ..)| path.starts_with(relative));
    }
}

impl AsFd for Tree {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

#[cfg(test)]
mod tests;
