//! The host's disk below all volumes. Their images are sparse: what is promised may not be there.

use std::path::PathBuf;

use soulbox_types::disk_reserve;

use crate::{Error, Result};

/// Room on the disk of the data folder, of which a reserve is left alone: see the node's disk guard.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    folder: PathBuf,
    at_least: u64,
}

impl Room {
    /// Never fewer than `at_least` bytes stay free.
    pub(crate) fn new(folder: PathBuf, at_least: u64) -> Self {
        Self { folder, at_least }
    }

    /// Whether anything more may be written.
    pub(crate) fn check(&self) -> Result<()> {
        let disk =
            rustix::fs::statvfs(&self.folder).map_err(Error::errno("read the free disk space"))?;
        let total = disk.f_blocks.saturating_mul(disk.f_frsize);
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let reserve = disk_reserve(total, self.at_least);
        if free < reserve {
            return Err(Error::HostFull {
                free_mib: free >> 20,
                reserve_mib: reserve >> 20,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_written_into_the_reserve() {
        let here = std::env::temp_dir();
        Room::new(here.clone(), 0).check().unwrap();
        let refused = Room::new(here, u64::MAX).check().unwrap_err();
        assert!(refused.to_string().contains("kept in reserve"), "{refused}");
    }
}
