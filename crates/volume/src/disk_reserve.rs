//! The host's disk below all volumes. Their images are sparse: what is promised may not be available.

use std::path::PathBuf;

use soulbox_types::disk_reserve;

use crate::{Error, Result};

/// The part of the data folder's disk that must stay free: see the node's disk guard.
#[derive(Debug, Clone)]
pub(crate) struct DiskReserve {
    folder: PathBuf,
    at_least: u64,
}

impl DiskReserve {
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
        DiskReserve::new(here.clone(), 0).check().unwrap();
        let refused = DiskReserve::new(here, u64::MAX).check().unwrap_err();
        assert!(refused.to_string().contains("kept in reserve"), "{refused}");
    }
}
