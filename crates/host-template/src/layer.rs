//! Builds one directory tree, named by the hash of its content.

use std::{
    ffi::OsStr,
    fs::{File, FileTimes},
    io::{self, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown, symlink},
    },
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, FileType, Mode};
use sha2::{Digest, Sha256};

use crate::{Result, error::At};

/// Nothing that belongs into `/etc` or `/var/lib/dpkg` is larger.
const LARGEST_COPY: u64 = 64 << 20;

/// Owner, as inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

pub(crate) const ROOT: Owner = Owner { uid: 0, gid: 0 };
pub(crate) const USER: Owner = Owner {
    uid: 1000,
    gid: 1000,
};

/// A tree in the making. Dropped unfinished, it is removed.
pub(crate) struct Layer {
    building: PathBuf,
    hash: Sha256,
}

impl Layer {
    /// Starts an empty tree next to where it will end up.
    pub(crate) fn start(dir: &Path, kind: &str) -> Result<Self> {
        let building = dir.join(format!("{BUILDING}{kind}-{}", std::process::id()));
        remove_all(&building)?;
        std::fs::DirBuilder::new()
            .mode(0o755)
            .create(&building)
            .at("make", &building)?;
        let layer = Self {
            building,
            hash: Sha256::new(),
        };
        layer.own(Path::new(""), 0o755, ROOT)?;
        Ok(layer)
    }

    /// Gives the tree its final name, `<kind>-<hash>`. Fine when another build was first.
    pub(crate) fn finish(self, dir: &Path, kind: &str) -> Result<PathBuf> {
        let hash = hex::encode(&self.hash.clone().finalize()[..10]);
        let done = dir.join(format!("{kind}-{hash}"));
        // A crash of the machine must not leave a complete-looking tree of empty files.
        File::open(&self.building)
            .and_then(|file| Ok(rustix::fs::syncfs(file)?))
            .at("write out", &self.building)?;
        match soulbox_durable::rename(&self.building, &done) {
            // rename(2) over a directory that is not empty; `Drop` removes ours.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty
                ) => {}
            other => other.at("name", &done)?,
        }
        Ok(done)
    }

    pub(crate) fn directory(&mut self, path: &str, mode: u32, owner: Owner) -> Result<()> {
        let path = Path::new(path);
        self.parents(path)?;
        let full = self.building.join(path);
        match std::fs::DirBuilder::new().mode(0o755).create(&full) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => other.at("make", &full)?,
        }
        self.own(path, mode, owner)?;
        self.note(path, mode, owner, b"directory");
        Ok(())
    }

    pub(crate) fn file(
        &mut self,
        path: &str,
        content: impl AsRef<[u8]>,
        mode: u32,
        owner: Owner,
    ) -> Result<()> {
        let path = Path::new(path);
        self.parents(path)?;
        let full = self.building.join(path);
        replace(&full)?;
        std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&full)
            .and_then(|mut file| file.write_all(content.as_ref()))
            .at("write", &full)?;
        self.own(path, mode, owner)?;
        self.note(path, mode, owner, content.as_ref());
        Ok(())
    }

    pub(crate) fn link(&mut self, path: &str, target: &str) -> Result<()> {
        self.link_at(Path::new(path), OsStr::new(target))
    }

    /// Hides what the layers below have under this name.
    pub(crate) fn whiteout(&mut self, path: &Path) -> Result<()> {
        let full = self.building.join(path);
        rustix::fs::mknodat(CWD, &full, FileType::CharacterDevice, Mode::empty(), 0)
            .at("make a whiteout at", &full)?;
        self.note(path, 0, ROOT, b"whiteout");
        Ok(())
    }

    /// Makes `path` and what leads to it as they are in `original`, so that the merged directory
    /// keeps its looks.
    pub(crate) fn mirror_directories(&mut self, path: &Path, original: &Path) -> Result<()> {
        let mut missing: Vec<_> = path
            .ancestors()
            .take_while(|p| !self.building.join(p).exists())
            .collect();
        while let Some(part) = missing.pop() {
            let full = self.building.join(part);
            std::fs::create_dir(&full).at("make", &full)?;
            let (mode, owner) = match std::fs::symlink_metadata(original.join(part)) {
                Ok(meta) => (
                    meta.mode() & 0o7777,
                    Owner {
                        uid: meta.uid(),
                        gid: meta.gid(),
                    },
                ),
                Err(_) => (0o755, ROOT),
            };
            self.own(part, mode, owner)?;
            self.note(part, mode, owner, b"directory");
        }
        Ok(())
    }

    /// Copies a file, link or whole directory, as far as everybody may read it. All of it
    /// belongs to root here. `wanted` is asked about every path below (relative to `source`).
    pub(crate) fn copy(
        &mut self,
        source: &Path,
        target: &Path,
        wanted: &dyn Fn(&Path) -> bool,
    ) -> Result<()> {
        self.copy_below(source, Path::new(""), target, wanted)
    }

    fn copy_below(
        &mut self,
        source: &Path,
        below: &Path,
        target: &Path,
        wanted: &dyn Fn(&Path) -> bool,
    ) -> Result<()> {
        let from = if below.as_os_str().is_empty() {
            source.to_owned()
        } else {
            source.join(below)
        };
        let to = if below.as_os_str().is_empty() {
            target.to_owned()
        } else {
            target.join(below)
        };
        let meta = match std::fs::symlink_metadata(&from) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.at("look at", &from)?,
        };
        if !wanted(below) {
            return Ok(());
        }
        if meta.is_symlink() {
            let link = std::fs::read_link(&from).at("read the link", &from)?;
            return self.link_at(&to, link.as_os_str());
        }
        if meta.is_dir() && meta.mode() & 0o005 == 0o005 {
            self.parents(&to)?;
            let full = self.building.join(&to);
            if !full.is_dir() {
                std::fs::create_dir(&full).at("make", &full)?;
            }
            self.own(&to, 0o755, ROOT)?;
            self.note(&to, 0o755, ROOT, b"directory");
            for name in sorted_names(&from)? {
                self.copy_below(source, &below.join(name), target, wanted)?;
            }
        } else if meta.is_file() && meta.mode() & 0o004 != 0 && meta.len() <= LARGEST_COPY {
            self.copy_file(&from, &to, &meta)?;
        }
        Ok(())
    }

    fn copy_file(&mut self, from: &Path, to: &Path, meta: &std::fs::Metadata) -> Result<()> {
        self.parents(to)?;
        let full = self.building.join(to);
        replace(&full)?;
        match std::fs::copy(from, &full) {
            // Taken away between the listing and now.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.at("copy", from)?,
        };
        let mode = meta.mode() & 0o755;
        self.own(to, mode, ROOT)?;
        let modified = meta.modified().at("look at", from)?;
        File::options()
            .write(true)
            .open(&full)
            .and_then(|file| file.set_times(FileTimes::new().set_modified(modified)))
            .at("set the time of", &full)?;
        // The time stands for the content, so that a rebuild need not read it all.
        let stamp = format!("{} {}.{}", meta.len(), meta.mtime(), meta.mtime_nsec());
        self.note(to, mode, ROOT, stamp.as_bytes());
        Ok(())
    }

    fn link_at(&mut self, path: &Path, target: &OsStr) -> Result<()> {
        self.parents(path)?;
        let full = self.building.join(path);
        replace(&full)?;
        symlink(target, &full).at("link", &full)?;
        self.note(path, 0o777, ROOT, target.as_bytes());
        Ok(())
    }

    /// Makes what leads to `path`. A link on the way is replaced by a directory: it may point out
    /// of the layer, and writing through it would change the host.
    fn parents(&self, path: &Path) -> Result<()> {
        let mut full = self.building.clone();
        for part in path.parent().into_iter().flat_map(Path::components) {
            full.push(part);
            match std::fs::symlink_metadata(&full) {
                Ok(meta) if meta.is_dir() => continue,
                Ok(_) => replace(&full)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error).at("look at", &full),
            }
            std::fs::create_dir(&full).at("make", &full)?;
            // Explicitly: the umask is the administrator's.
            set_mode(&full, 0o755)?;
        }
        Ok(())
    }

    fn own(&self, path: &Path, mode: u32, owner: Owner) -> Result<()> {
        let full = self.building.join(path);
        lchown(&full, Some(owner.uid), Some(owner.gid)).at("give away", &full)?;
        // After the owner: a change of owner drops the set-uid bit.
        set_mode(&full, mode)
    }

    fn note(&mut self, path: &Path, mode: u32, owner: Owner, content: &[u8]) {
        let path = path.as_os_str().as_bytes();
        let head = format!("{} {} {} {mode:o} ", path.len(), content.len(), owner.uid);
        self.hash.update(head.as_bytes());
        self.hash.update(owner.gid.to_le_bytes());
        self.hash.update(path);
        self.hash.update(content);
    }
}

impl Drop for Layer {
    fn drop(&mut self) {
        if let Err(error) = remove_all(&self.building) {
            tracing::warn!(path = %self.building.display(), %error, "could not remove half a layer");
        }
    }
}

/// How unfinished trees are called.
pub(crate) const BUILDING: &str = "building-";

/// A later entry wins over an earlier one of the same name.
fn replace(full: &Path) -> Result<()> {
    match std::fs::remove_file(full) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.at("replace", full),
    }
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        .at("set the mode of", path)
}

pub(crate) fn sorted_names(dir: &Path) -> Result<Vec<std::ffi::OsString>> {
    let mut names = std::fs::read_dir(dir)
        .and_then(|entries| {
            entries
                .map(|e| Ok(e?.file_name()))
                .collect::<io::Result<Vec<_>>>()
        })
        .at("list", dir)?;
    names.sort_unstable();
    Ok(names)
}

pub(crate) fn remove_all(path: &Path) -> Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.at("remove", path),
    }
}
