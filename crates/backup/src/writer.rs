//! Writing a backup.

use std::{
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use fs_err as fs;

use crate::{
    Error, FileEntry, FileKind, Manifest, Place, Progress, Result, Watcher, error::At, layer,
    manifest::is_below,
};

/// One backup that is being written. Dropped before [`Self::finish`], nothing of it is left.
#[expect(missing_debug_implementations, reason = "it has somebody who watches")]
pub struct Writer<'a> {
    place: Place,
    files: Vec<FileEntry>,
    watcher: &'a dyn Watcher,
    done: u64,
    total: u64,
    finished: bool,
}

impl<'a> Writer<'a> {
    pub fn new(place: Place, watcher: &'a dyn Watcher) -> Self {
        Self {
            place,
            files: Vec::new(),
            watcher,
            done: 0,
            total: 0,
            finished: false,
        }
    }

    /// How much there will be, about.
    pub fn expect(&mut self, total: u64) {
        self.total = total;
    }

    /// Where a file of the backup is, for those who write it themselves; then it is [recorded].
    ///
    /// [recorded]: Self::record
    pub fn path(&self, path: &Path) -> PathBuf {
        self.place.unfinished.join(path)
    }

    /// Whether the previous backup has this file already.
    pub fn has_before(&self, path: &Path, unchanging: &str) -> bool {
        self.before(path, unchanging).is_some()
    }

    pub fn make_folder(&self, path: &Path) -> Result<()> {
        let folder = self.path(path);
        fs::create_dir_all(&folder).at("make", &folder)
    }

    /// Copies one file. `unchanging`: its content never changes while it has this word.
    pub fn copy(&mut self, from: &Path, path: &Path, unchanging: Option<&str>) -> Result<()> {
        self.goes_on(path)?;
        let mode = fs::metadata(from).at("read", from)?.permissions().mode() & 0o7777;
        if let Some(word) = unchanging
            && self.take_over(path, word)?
        {
            return Ok(());
        }
        let to = self.path(path);
        make_above(&to)?;
        soulbox_sparse::copy(from, &to).at("copy", from)?;
        self.add(path, FileKind::File, mode, unchanging)
    }

    /// Writes one file, for its owner alone: it may hold a key.
    pub fn write(&mut self, path: &Path, content: &[u8]) -> Result<()> {
        self.goes_on(path)?;
        let to = self.path(path);
        make_above(&to)?;
        fs::write(&to, content).at("write", &to)?;
        fs::set_permissions(&to, std::fs::Permissions::from_mode(0o600)).at("write", &to)?;
        self.record(path)
    }

    /// Keeps a folder as one archive, at its path with `.tar` behind it.
    pub fn layer(&mut self, from: &Path, path: &Path, unchanging: &str) -> Result<Vec<PathBuf>> {
        let mut name = path.as_os_str().to_owned();
        name.push(".tar");
        let path = PathBuf::from(name);
        self.goes_on(&path)?;
        if self.take_over(&path, unchanging)? {
            return Ok(Vec::new());
        }
        let to = self.path(&path);
        make_above(&to)?;
        let left_out = layer::pack(from, &to, &|| self.goes_on(&path))?;
        self.add(&path, FileKind::Folder, 0o600, Some(unchanging))?;
        Ok(left_out)
    }

    /// A file that somebody else has written in its place.
    pub fn record(&mut self, path: &Path) -> Result<()> {
        let to = self.path(path);
        fs::set_permissions(&to, std::fs::Permissions::from_mode(0o600)).at("close", &to)?;
        self.add(path, FileKind::File, 0o600, None)
    }

    /// All files of a folder that somebody else has written.
    pub fn record_folder(&mut self, path: &Path) -> Result<()> {
        let folder = self.path(path);
        let mut names = Vec::new();
        for entry in fs::read_dir(&folder).at("list", &folder)? {
            names.push(entry.at("list", &folder)?.file_name());
        }
        names.sort_unstable();
        names
            .into_iter()
            .try_for_each(|name| self.record(&path.join(name)))
    }

    /// Puts everything on the disk, and gives the backup its name.
    pub fn finish(mut self, mut manifest: Manifest) -> Result<(PathBuf, Manifest)> {
        let folder = self.place.unfinished.clone();
        self.goes_on(Path::new("everything, onto the disk"))?;
        let opened = fs::File::open(&folder).at("open", &folder)?;
        rustix::fs::syncfs(opened.file()).at("put on the disk", &folder)?;
        manifest.files = std::mem::take(&mut self.files);
        manifest.write(&folder)?;
        let finished = self.place.finish()?;
        self.finished = true;
        Ok((finished, manifest))
    }

    pub fn goes_on(&self, path: &Path) -> Result<()> {
        let what = path.to_string_lossy();
        let progress = Progress {
            done: self.done,
            total: self.total.max(self.done),
            what: &what,
        };
        if self.watcher.goes_on(progress) {
            Ok(())
        } else {
            Err(Error::Stopped)
        }
    }

    fn before(&self, path: &Path, unchanging: &str) -> Option<(PathBuf, FileEntry)> {
        let (folder, manifest) = self.place.previous.as_ref()?;
        let known = manifest.files.iter().find(|file| file.path == path)?;
        let same = known.unchanging.as_deref() == Some(unchanging);
        let file = folder.join(path);
        // Damage inside of it is found when it is restored.
        let whole = fs::metadata(&file).is_ok_and(|found| found.len() == known.length);
        (same && whole).then(|| (file, known.clone()))
    }

    /// Links what the previous backup has; `false` when it has it not, or the disk has no links.
    fn take_over(&mut self, path: &Path, unchanging: &str) -> Result<bool> {
        let Some((file, known)) = self.before(path, unchanging) else {
            return Ok(false);
        };
        let to = self.path(path);
        make_above(&to)?;
        if let Err(error) = fs::hard_link(&file, &to) {
            tracing::debug!(%error, "not linked; copied instead");
            return Ok(false);
        }
        self.done += known.bytes;
        self.files.push(known);
        Ok(true)
    }

    fn add(
        &mut self,
        path: &Path,
        kind: FileKind,
        mode: u32,
        unchanging: Option<&str>,
    ) -> Result<()> {
        debug_assert!(is_below(path), "{}", path.display());
        let file = self.path(path);
        let sum = soulbox_sparse::checksum(&file).at("read", &file)?;
        let length = fs::metadata(&file).at("read", &file)?.size();
        self.done += sum.bytes;
        self.files.push(FileEntry {
            path: path.to_owned(),
            kind,
            mode,
            length,
            bytes: sum.bytes,
            checksum: sum.hex,
            unchanging: unchanging.map(str::to_owned),
        });
        Ok(())
    }
}

fn make_above(path: &Path) -> Result<()> {
    match path.parent() {
        Some(above) => fs::create_dir_all(above).at("make", above),
        None => Ok(()),
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.place.abandon();
        }
    }
}
