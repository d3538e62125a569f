//! The part of the disk that uploads must leave free.

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
        let left = FreeSpace {
            bytes: free,
            files: disk.f_favail,
            all_files: disk.f_files,
        };
        match left.shortage(self.bytes.saturating_add(more), self.bytes) {
            Some(why) => Err(FilesError::NoSpace { why }),
            None => Ok(()),
        }
    }
}

struct FreeSpace {
    bytes: u64,
    files: u64,
    /// 0 where the file system makes them as they are needed.
    all_files: u64,
}

impl FreeSpace {
    fn shortage(&self, needed: u64, reserve: u64) -> Option<String> {
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
        let left = |bytes, files, all_files| FreeSpace {
            bytes,
            files,
            all_files,
        };
        assert_eq!(left(10, 6, 100).shortage(10, 5), None);
        assert!(
            left(9, 6, 100)
                .shortage(10, 5)
                .unwrap()
                .contains("MiB free")
        );
        assert!(left(10, 4, 100).shortage(10, 5).unwrap().contains("files"));
        assert_eq!(
            left(10, 0, 0).shortage(10, 5),
            None,
            "no fixed number of them"
        );
    }
}
