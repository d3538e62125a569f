//! The directory that a layer is unpacked into.
//!
//! Every name is resolved by the kernel as if the directory were the root of everything
//! (`RESOLVE_IN_ROOT`), and every change is made relative to a descriptor of the directory that
//! was found. So a link in the archive can point wherever it likes: following it stays inside.
//! Nobody else writes below a fresh directory, hence nothing can change between two calls.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{
        AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid,
        XattrFlags,
    },
    io::Errno,
};

use super::{
    LayerError,
    name::{Name, shown},
    tar_reader::Entry,
};

const OPAQUE: &str = "trusted.overlay.opaque";
/// Names of directories whose times are still to be set are kept in memory.
const MAX_REMEMBERED: usize = 64 << 20;
const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

/// What was under a name before.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Existing {
    Nothing,
    Directory,
    /// The same layer said that what is below goes away.
    Whiteout,
}

pub(crate) struct Tree {
    root: OwnedFd,
    /// Archives go directory by directory.
    last: Option<(PathBuf, OwnedFd)>,
    /// Set at the end: every new entry changes its directory's.
    times: BTreeMap<PathBuf, (i64, u32)>,
    /// Directories that the archive uses but has not described.
    implied: BTreeSet<PathBuf>,
    remembered: usize,
}

impl Tree {
    /// `root` is new, empty, and nobody else's.
    pub(crate) fn new(root: &Path) -> io::Result<Self> {
        let root = rustix::fs::openat(CWD, root, OFlags::RDONLY | DIRECTORY, Mode::empty())?;
        rustix::fs::fchmod(&root, Mode::from_raw_mode(0o755))?;
        Ok(Self {
            root,
            last: None,
            times: BTreeMap::new(),
            implied: BTreeSet::from([PathBuf::new()]),
            remembered: 0,
        })
    }

    pub(crate) fn free_bytes(&self) -> io::Result<u64> {
        let disk = rustix::fs::fstatvfs(&self.root)?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    /// Whether the disk can take many more names. File systems that have no fixed number of them
    /// say 0.
    pub(crate) fn has_room_for_names(&self) -> io::Result<bool> {
        let disk = rustix::fs::fstatvfs(&self.root)?;
        Ok(disk.f_files == 0 || disk.f_favail > disk.f_files / 50)
    }

    /// The directory of `name`, made if need be, and the name in it. `None` for the root.
    pub(crate) fn place<'a>(
        &mut self,
        name: &'a Name,
    ) -> Result<Option<(OwnedFd, &'a OsStr)>, LayerError> {
        let Some((parent, file)) = name.split() else {
            return Ok(None);
        };
        Ok(Some((self.directory(parent)?, file)))
    }

    /// A directory, made with its parents if need be.
    pub(crate) fn directory(&mut self, path: &Path) -> Result<OwnedFd, LayerError> {
        let failed = |cause| write_error(path, cause);
        if let Some((last, descriptor)) = &self.last
            && last == path
        {
            return descriptor.try_clone().map_err(failed);
        }
        let found = match self.find(path) {
            Ok(found) => found,
            Err(Errno::NOENT | Errno::NOTDIR) => self.make(path)?,
            Err(error) => return Err(failed(error.into())),
        };
        self.last = Some((path.to_owned(), found.try_clone().map_err(failed)?));
        Ok(found)
    }

    /// Whether there is a directory, or nothing (a whiteout included), and no link on the way.
    pub(crate) fn is_free_for_directory(&self, path: &Path) -> bool {
        path.ancestors().all(|step| {
            match self.look(
                step,
                OFlags::PATH | OFlags::NOFOLLOW,
                ResolveFlags::NO_SYMLINKS,
            ) {
                Ok(found) => rustix::fs::fstat(&found).is_ok_and(|stat| {
                    let kind = FileType::from_raw_mode(stat.st_mode);
                    matches!(kind, FileType::Directory | FileType::CharacterDevice)
                }),
                // The next step reports what is above.
                Err(Errno::NOENT | Errno::NOTDIR) => true,
                Err(_) => false,
            }
        })
    }

    /// A directory that is there.
    pub(crate) fn find(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        self.look(path, OFlags::PATH | DIRECTORY, ResolveFlags::empty())
    }

    fn look(&self, path: &Path, flags: OFlags, more: ResolveFlags) -> rustix::io::Result<OwnedFd> {
        let rules = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        let flags = flags | OFlags::CLOEXEC;
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        loop {
            match rustix::fs::openat2(&self.root, path, flags, Mode::empty(), rules | more) {
                // A rename somewhere on the machine; resolved at the next try.
                Err(Errno::AGAIN | Errno::INTR) => {}
                done => return done,
            }
        }
    }

    fn make(&mut self, path: &Path) -> Result<OwnedFd, LayerError> {
        let mut here = self.find(Path::new("")).map_err(errno(path))?;
        let mut so_far = PathBuf::new();
        for part in path {
            so_far.push(part);
            here = match self.find(&so_far) {
                Ok(found) => found,
                Err(Errno::NOENT | Errno::NOTDIR) => {
                    let made = make_implied(&here, part, &so_far)?;
                    self.put(&so_far)?;
                    self.implied.insert(so_far.clone());
                    made
                }
                Err(error) => return Err(errno(path)(error)),
            };
        }
        Ok(here)
    }

    /// Makes room for an entry. What is there goes, except a directory for a directory.
    pub(crate) fn clear(
        &mut self,
        parent: &OwnedFd,
        name: &OsStr,
        for_directory: bool,
    ) -> Result<Existing, LayerError> {
        let failed = errno(Path::new(name));
        match kind(parent, name).map_err(&failed)? {
            None => Ok(Existing::Nothing),
            Some(FileType::Directory) if for_directory => Ok(Existing::Directory),
            Some(found) => {
                remove(parent.as_fd(), name, found).map_err(failed)?;
                self.last = None;
                Ok(match found {
                    FileType::CharacterDevice => Existing::Whiteout,
                    _ => Existing::Nothing,
                })
            }
        }
    }

    /// Sets what the entry says of a directory; its time later.
    pub(crate) fn describe_directory(
        &mut self,
        directory: &OwnedFd,
        path: &Path,
        entry: &Entry,
        owner: (Uid, Gid),
    ) -> Result<(), LayerError> {
        describe(directory.as_fd(), entry, owner)?;
        self.put(path)?;
        self.implied.remove(path);
        self.times.insert(path.to_owned(), entry.mtime);
        Ok(())
    }

    fn put(&mut self, path: &Path) -> Result<(), LayerError> {
        self.remembered += path.as_os_str().len() + 64;
        if self.remembered > MAX_REMEMBERED {
            return Err(LayerError::Damaged("it has too many directories".into()));
        }
        Ok(())
    }

    /// After the last entry. Gives the directories that were never described.
    pub(crate) fn finish(&mut self) -> Result<Vec<PathBuf>, LayerError> {
        self.last = None;
        for (path, mtime) in std::mem::take(&mut self.times) {
            // Something else may have taken its place since.
            if let Ok(directory) = self.find(&path) {
                let times = timestamps(mtime);
                rustix::fs::utimensat(&directory, ".", &times, AtFlags::empty())
                    .map_err(errno(&path))?;
            }
        }
        Ok(std::mem::take(&mut self.implied).into_iter().collect())
    }
}

/// What is below in other layers ends here. Devices of the archive are never made, so every
/// character device in the tree is one of these.
pub(crate) fn whiteout(parent: &OwnedFd, name: &OsStr) -> Result<(), LayerError> {
    let failed = errno(Path::new(name));
    match kind(parent, name).map_err(&failed)? {
        // What the same layer adds stays; of a directory, only this layer's part.
        Some(FileType::Directory) => set_opaque(&open_directory(parent, name)?),
        Some(_) => Ok(()),
        None => rustix::fs::mknodat(
            parent,
            name,
            FileType::CharacterDevice,
            Mode::empty(),
            rustix::fs::makedev(0, 0),
        )
        .map_err(failed),
    }
}

/// A directory that the archive uses but does not describe.
fn make_implied(parent: &OwnedFd, name: &OsStr, path: &Path) -> Result<OwnedFd, LayerError> {
    let failed = errno(path);
    let was = kind(parent, name).map_err(&failed)?;
    match was {
        None => {}
        Some(FileType::CharacterDevice) => {
            rustix::fs::unlinkat(parent, name, AtFlags::empty()).map_err(&failed)?;
        }
        Some(FileType::Symlink) => {
            return Err(LayerError::Escape {
                entry: shown(path.as_os_str().as_bytes()),
                reason: "it goes through a symbolic link to something that the layer has not",
            });
        }
        Some(_) => {
            return Err(LayerError::Entry {
                entry: shown(path.as_os_str().as_bytes()),
                reason: "it is used as a directory but is none".to_owned(),
            });
        }
    }
    rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o700)).map_err(&failed)?;
    let directory = open_directory(parent, name)?;
    // The upper layer's directory decides over the mode that the sandbox sees: leaving it out of
    // an archive must not close /tmp for everybody, nor open /root.
    let mode = match path.as_os_str().as_bytes() {
        b"tmp" | b"var/tmp" => 0o1777,
        b"root" => 0o700,
        _ => 0o755,
    };
    rustix::fs::fchown(&directory, Some(Uid::ROOT), Some(Gid::ROOT)).map_err(&failed)?;
    rustix::fs::fchmod(&directory, Mode::from_raw_mode(mode)).map_err(&failed)?;
    if was.is_some() {
        set_opaque(&directory)?;
    }
    Ok(directory)
}

pub(crate) fn kind(parent: &OwnedFd, name: &OsStr) -> rustix::io::Result<Option<FileType>> {
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// For reading: attributes can only be set through such a descriptor.
pub(crate) fn open_directory(parent: &OwnedFd, name: &OsStr) -> Result<OwnedFd, LayerError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | DIRECTORY;
    rustix::fs::openat(parent, name, flags, Mode::empty()).map_err(errno(Path::new(name)))
}

pub(crate) fn create_file(parent: &OwnedFd, name: &OsStr) -> Result<File, LayerError> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o600));
    Ok(File::from(file.map_err(errno(Path::new(name)))?))
}

pub(crate) fn set_opaque(directory: &OwnedFd) -> Result<(), LayerError> {
    rustix::fs::fsetxattr(directory, OPAQUE, b"y", XattrFlags::empty())
        .map_err(errno(Path::new(".")))
}

pub(crate) fn is_opaque(directory: BorrowedFd<'_>) -> bool {
    let mut value = [0_u8; 1];
    matches!(rustix::fs::fgetxattr(directory, OPAQUE, &mut value), Ok(1)) && value == *b"y"
}

/// Owner, mode and attributes of a file or directory, in the order in which the kernel does not
/// take one back because of the next: a new owner clears setuid bits and capabilities.
pub(crate) fn describe(
    file: BorrowedFd<'_>,
    entry: &Entry,
    (uid, gid): (Uid, Gid),
) -> Result<(), LayerError> {
    let failed = |cause: Errno| write_error_raw(&entry.path, cause.into());
    rustix::fs::fchown(file, Some(uid), Some(gid)).map_err(failed)?;
    rustix::fs::fchmod(file, Mode::from_raw_mode(entry.mode)).map_err(failed)?;
    for (name, value) in &entry.xattrs {
        if !is_kept(name) {
            continue;
        }
        match rustix::fs::fsetxattr(file, name.as_str(), value, XattrFlags::empty()) {
            // A disk whose file system has none: images work without.
            Ok(()) | Err(Errno::NOTSUP) => {}
            Err(Errno::INVAL) if name == CAPABILITY => {
                return Err(LayerError::Entry {
                    entry: shown(&entry.path),
                    reason: "its capabilities are not valid".to_owned(),
                });
            }
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(())
}

const CAPABILITY: &str = "security.capability";

/// What else there is speaks to the host's kernel (overlayfs, SELinux, IMA), not to programs.
fn is_kept(name: &str) -> bool {
    let users = name.starts_with("user.") && !name.starts_with("user.overlay.");
    (users || name == CAPABILITY) && !name.contains('\0')
}

pub(crate) fn timestamps((seconds, nanoseconds): (i64, u32)) -> Timestamps {
    let time = Timespec {
        // What file systems can hold; ext4's last is in 2446.
        tv_sec: seconds.clamp(-(1 << 31), (1 << 33) - 1),
        tv_nsec: nanoseconds.min(999_999_999).into(),
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}

fn remove(parent: BorrowedFd<'_>, name: &OsStr, kind: FileType) -> rustix::io::Result<()> {
    if kind != FileType::Directory {
        return rustix::fs::unlinkat(parent, name, AtFlags::empty());
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | DIRECTORY;
    let directory = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => {
                let stat = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
                FileType::from_raw_mode(stat.st_mode)
            }
            known => known,
        };
        // As deep as names can be, which is bounded.
        remove(directory.as_fd(), name, kind)?;
    }
    rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
}

pub(crate) fn errno(path: &Path) -> impl Fn(Errno) -> LayerError {
    move |error| write_error(path, error.into())
}

fn write_error(path: &Path, cause: io::Error) -> LayerError {
    write_error_raw(path.as_os_str().as_bytes(), cause)
}

pub(crate) fn write_error_raw(path: &[u8], cause: io::Error) -> LayerError {
    let entry = shown(path);
    // Some failures are the archive's fault, not the disk's.
    let refused = |reason: &str| LayerError::Entry {
        entry: entry.clone(),
        reason: reason.to_owned(),
    };
    match Errno::from_io_error(&cause) {
        Some(Errno::NOSPC | Errno::DQUOT) => LayerError::NoSpace,
        Some(Errno::LOOP) => refused("a link on the way to it leads to itself"),
        Some(Errno::NAMETOOLONG) => refused("a part of its name is too long"),
        _ => LayerError::Write { entry, cause },
    }
}
