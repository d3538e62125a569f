//! The part of a disk that uploads leave alone.

use std::{io, path::PathBuf};

use crate::FilesError;

/// Of all files that the disk can hold, so many per cent stay free to be made by others.
const FREE_FILES_PERCENT: u64 = 5;

#[derive(Debug)]
pub(crate) struct Reserve {
    folder: PathBuf,
    bytes: u64,
}

impl Reserve {
    pub(crate) fn new(folder: PathBuf, bytes: u64) -> Self {
        Self { folder, bytes }
    }

    /// Whether `more` bytes fit without touching it.
    pub(crate) async fn check(&self, more: u64) -> Result<(), FilesError> {
        let folder = self.folder.clone();
        let disk = tokio::task::spawn_blocking(move || rustix::fs::statvfs(&folder))
            .await
            .map_err(|error| FilesError::Io(io::Error::other(error)))?
            .map_err(|error| FilesError::Io(error.into()))?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let left = Left {
            bytes: free,
            files: disk.f_favail,
            all_files: disk.f_files,
        };
        match left.lacks(self.bytes.saturating_add(more), self.bytes) {
            Some(why) => Err(FilesError::NoSpace { why }),
            None => Ok(()),
        }
    }
}

struct Left {
    bytes: u64,
    files: u64,
    /// 0 where the file system makes them as they are needed.
    all_files: u64,
}

impl Left {
    fn lacks(&self, needed: u64, reserve: u64) -> Option<String> {
        if self.bytes < needed {
            return Some(format!(
                "the server's disk has only {} MiB free, and {} MiB are kept in reserve",
                self.bytes >> 20,
                reserve >> 20
            ));
        }
        let kept = self.all_files / 100 * FREE_FILES_PERCENT;
        (self.files < kept).then(|| {
            format!(
                "the server's disk can hold only {} more files, and {kept} are kept in reserve",
                self.files
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_bytes_nor_files_may_run_short() {
        let left = |bytes, files, all_files| Left {
            bytes,
            files,
            all_files,
        };
        assert_eq!(left(10, 6, 100).lacks(10, 5), None);
        assert!(left(9, 6, 100).lacks(10, 5).unwrap().contains("MiB free"));
        assert!(left(10, 4, 100).lacks(10, 5).unwrap().contains("files"));
        assert_eq!(left(10, 0, 0).lacks(10, 5), None, "no fixed number of them");
    }
}
