//! Whether a backup is what was written.

use std::path::Path;

use fs_err as fs;

use crate::{Error, FileEntry, FileKind, Manifest, Progress, Result, Watcher, error::At, layer};

/// Reads every file. The first one that is not what was written, or that a restore would refuse, is
/// named.
pub fn verify(folder: &Path, manifest: &Manifest, watcher: &dyn Watcher) -> Result<()> {
    let total = manifest.bytes();
    let mut done = 0;
    for file in &manifest.files {
        let what = file.path.to_string_lossy();
        let goes_on = || {
            let progress = Progress {
                done,
                total,
                what: &what,
            };
            if watcher.goes_on(progress) {
                Ok(())
            } else {
                Err(Error::Stopped)
            }
        };
        goes_on()?;
        check(folder, file)?;
        if matches!(file.kind, FileKind::Folder) {
            layer::check(&folder.join(&file.path), &goes_on)?;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_that_a_restore_would_refuse_is_not_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("layer.tar");
        // As it was written once: a value with a newline, as it is.
        let mut archive = tar::Builder::new(std::fs::File::create(&path).unwrap());
        let record = ("SCHILY.xattr.user.x", &b"one\ntwo"[..]);
        archive.append_pax_extensions([record]).unwrap();
        archive.append_dir(".", folder.path()).unwrap();
        archive.finish().unwrap();
        let sum = soulbox_sparse::checksum(&path).unwrap();
        let manifest = Manifest {
            format: crate::FORMAT,
            version: String::new(),
            created_at: soulbox_types::UnixMillis::now(),
            data_dir: folder.path().to_owned(),
            host: String::new(),
            sandboxes: Vec::new(),
            snapshots: Vec::new(),
            volumes: Vec::new(),
            builds: Vec::new(),
            left_out: Vec::new(),
            files: vec![FileEntry {
                path: "layer.tar".into(),
                kind: FileKind::Folder,
                mode: 0o600,
                length: std::fs::metadata(&path).unwrap().len(),
                bytes: sum.bytes,
                checksum: sum.hex,
                unchanging: None,
            }],
        };
        let refused = verify(folder.path(), &manifest, &|_: Progress<'_>| true).unwrap_err();
        assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
    }
}
