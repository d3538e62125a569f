//! Whether a backup is what was written.

use std::path::Path;

use fs_err as fs;

use crate::{Error, FileEntry, Manifest, Progress, Result, Watcher, error::At};

/// Reads every file. The first one that is not what was written is named.
pub fn verify(folder: &Path, manifest: &Manifest, watcher: &dyn Watcher) -> Result<()> {
    let total = manifest.bytes();
    let mut done = 0;
    for file in &manifest.files {
        let what = file.path.to_string_lossy();
        let progress = Progress {
            done,
            total,
            what: &what,
        };
        if !watcher.goes_on(progress) {
            return Err(Error::Stopped);
        }
        check(folder, file)?;
        done += file.bytes;
    }
    Ok(())
}

fn check(folder: &Path, file: &FileEntry) -> Result<()> {
    let path = folder.join(&file.path);
    let damaged = |why: String| Error::Damaged {
        path: file.path.clone(),
        why,
    };
    let found = match fs::symlink_metadata(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(damaged("it is missing".to_owned()));
        }
        other => other.at("read", &path)?,
    };
    if !found.is_file() {
        return Err(damaged("it is not a file".to_owned()));
    }
    if found.len() != file.length {
        return Err(damaged(format!(
            "it has {} bytes instead of {}",
            found.len(),
            file.length
        )));
    }
    let sum = soulbox_sparse::checksum(&path).at("read", &path)?;
    if sum.hex != file.checksum {
        return Err(damaged("its checksum does not match".to_owned()));
    }
    Ok(())
}
