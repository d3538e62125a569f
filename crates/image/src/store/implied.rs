//! Directories that a layer uses but does not describe.
//!
//! A layer with nothing but `home/app/new` leaves it to the layers below what `home/app` is. Yet
//! overlayfs shows the uppermost directory's owner and mode, and that one was made up while
//! unpacking. Where it makes a difference, one more layer on top of the stack has the directories
//! as they should be, and nothing else.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs::{File, OpenOptions},
    io::{self, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{
            ffi::OsStrExt,
            fs::{DirBuilderExt, OpenOptionsExt},
        },
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid},
    io::Errno,
};

use super::{Inner, make_folder};
use crate::{Result, digest::Digest, error::At, layer};

/// Attributes of a directory.
#[derive(Debug, Clone, Copy)]
struct Attributes {
    mode: u32,
    uid: u32,
    gid: u32,
    modified: i64,
}

impl Attributes {
    fn equals(&self, other: &Self) -> bool {
        (self.mode, self.uid, self.gid) == (other.mode, other.uid, other.gid)
    }
}

/// One layer of a stack, read-only.
struct LayerView {
    root: OwnedFd,
    implied: BTreeSet<PathBuf>,
}

/// What a layer holds at a path.
enum LayerEntry {
    /// Nothing: it does not have it.
    Nothing,
    Directory {
        attributes: Attributes,
        implied: bool,
        /// Nothing of the layers below is seen through it.
        opaque: bool,
    },
    /// It is something else here, or gone.
    Other,
}

impl Inner {
    /// Kept with the layer's sources, and goes with them. Before the layer has its name.
    pub(super) fn note_implied(&self, layer: &Digest, implied: &[PathBuf]) -> Result<()> {
        make_folder(&self.sources(layer))?;
        let path = self.implied(layer);
        let mut text = Vec::new();
        for directory in implied {
            text.extend_from_slice(directory.as_os_str().as_bytes());
            text.push(0);
        }
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options
            .open(&path)
            .and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_data()))
            .at("write", &path)
    }

    fn implied(&self, layer: &Digest) -> PathBuf {
        self.sources(layer).join("implied")
    }

    /// The layer that has to go on top, if any.
    pub(super) fn correction(&self, layers: &[PathBuf]) -> Result<Option<PathBuf>> {
        let mut views = Vec::new();
        for layer in layers.iter().rev() {
            views.push(self.open_view(layer)?);
        }
        let mut wrong = BTreeMap::new();
        for path in views.iter().flat_map(|view| &view.implied) {
            if !wrong.contains_key(path)
                && let Some((shown, right)) = directory_attributes(&views, path)
                && !shown.equals(&right)
            {
                // The directories above are in the new layer as well, so they must be right.
                for above in path.ancestors() {
                    if let Some((_, right)) = directory_attributes(&views, above) {
                        wrong.insert(above.to_owned(), right);
                    }
                }
            }
        }
        if wrong.is_empty() {
            return Ok(None);
        }
        self.make_correction(&wrong).map(Some)
    }

    fn open_view(&self, layer: &Path) -> Result<LayerView> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, layer, flags, Mode::empty()).at("open", layer)?;
        let name = layer.file_name().and_then(OsStr::to_str);
        let text = match name.and_then(Digest::from_hex) {
            Some(digest) => std::fs::read(self.implied(&digest)).unwrap_or_default(),
            None => Vec::new(),
        };
        let implied = text
            .split_inclusive(|byte| *byte == 0)
            .filter_map(|path| path.strip_suffix(b"\0"))
            .map(|path| PathBuf::from(OsStr::from_bytes(path)))
            .collect();
        Ok(LayerView { root, implied })
    }

    fn make_correction(&self, wanted: &BTreeMap<PathBuf, Attributes>) -> Result<PathBuf> {
        let digest = Digest::of(format!("{wanted:?}").as_bytes());
        let done = self.layer(&digest);
        if done.is_dir() {
            self.touch(&digest)?;
            return Ok(done);
        }
        let temporary = self.temporary();
        let building = tempfile::tempdir_in(&temporary).at("make a folder in", &temporary)?;
        let root = building.path().join("root");
        for path in wanted.keys() {
            let path = root.join(path);
            let mut builder = std::fs::DirBuilder::new();
            builder.mode(0o700).create(&path).at("make", &path)?;
        }
        // From the deepest up: a new entry changes its directory's time.
        for (path, attributes) in wanted.iter().rev() {
            let path = root.join(path);
            File::open(&path)
                .and_then(|directory| attributes.apply(&directory))
                .at("describe", &path)?;
        }
        self.name(&root, &digest)?;
        Ok(done)
    }
}

impl Attributes {
    fn apply(&self, directory: &File) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        rustix::fs::fchown(directory, Some(uid), Some(gid))?;
        rustix::fs::fchmod(directory, Mode::from_raw_mode(self.mode))?;
        let time = Timespec {
            tv_sec: self.modified,
            tv_nsec: 0,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        Ok(rustix::fs::futimens(directory, &times)?)
    }
}

/// How overlayfs shows a directory, and how it should look. From the uppermost layer down.
fn directory_attributes(views: &[LayerView], path: &Path) -> Option<(Attributes, Attributes)> {
    let mut shown = None;
    for view in views {
        match view.lookup(path) {
            LayerEntry::Nothing => {}
            LayerEntry::Other => break,
            LayerEntry::Directory {
                attributes,
                implied,
                opaque,
            } => {
                let first = *shown.get_or_insert(attributes);
                if !implied {
                    return Some((first, attributes));
                }
                if opaque {
                    break;
                }
            }
        }
    }
    shown.map(|attributes| (attributes, attributes))
}

impl LayerView {
    fn lookup(&self, path: &Path) -> LayerEntry {
        let mut opaque = false;
        let mut above: Vec<&Path> = path.ancestors().collect();
        above.reverse();
        for step in above {
            let found = match self.open(step) {
                Ok(found) => found,
                Err(Errno::NOENT) if opaque => return LayerEntry::Other,
                Err(Errno::NOENT) => return LayerEntry::Nothing,
                // A file or a link on the way, or worse.
                Err(_) => return LayerEntry::Other,
            };
            let Ok(stat) = rustix::fs::fstat(&found) else {
                return LayerEntry::Other;
            };
            if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
                return LayerEntry::Other;
            }
            opaque |= is_opaque(&found);
            if step == path {
                let attributes = Attributes {
                    mode: stat.st_mode & 0o7777,
                    uid: stat.st_uid,
                    gid: stat.st_gid,
                    modified: stat.st_mtime,
                };
                let implied = self.implied.contains(path);
                return LayerEntry::Directory {
                    attributes,
                    implied,
                    opaque,
                };
            }
        }
        LayerEntry::Nothing
    }

    /// Never through a link: the layer is untrusted.
    fn open(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let rules = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat2(&self.root, path, flags, Mode::empty(), rules)
    }
}

fn is_opaque(directory: &OwnedFd) -> bool {
    // Attributes cannot be read through a descriptor that only names the directory.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(directory, ".", flags, Mode::empty())
        .is_ok_and(|directory| layer::is_opaque(directory.as_fd()))
}
