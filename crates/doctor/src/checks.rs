//! One file per area. Every check leaves the machine as it was.

pub(crate) mod cgroups;
pub(crate) mod features;
pub(crate) mod identity;
pub(crate) mod ports;
pub(crate) mod probes;
pub(crate) mod sandbox;
pub(crate) mod storage;
pub(crate) mod tiers;

use std::{
    fs::Permissions,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// A directory to try things in, on the file system that the server will use; gone afterwards.
pub(crate) struct Scratch {
    dir: Result<tempfile::TempDir, String>,
}

impl Scratch {
    pub(crate) fn new(data_dir: &Path) -> Self {
        if data_dir.exists() && !data_dir.is_dir() {
            let message = format!("{} is not a folder", data_dir.display());
            return Self { dir: Err(message) };
        }
        // The data folder may be yet to be made: its nearest ancestor is on the same file system.
        let near = data_dir
            .ancestors()
            .find(|path| path.is_dir())
            .unwrap_or(Path::new("/"));
        let dir = tempfile::Builder::new()
            .prefix(".soulbox-doctor-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(near);
        Self {
            dir: dir.map_err(|error| format!("cannot write to {}: {error}", near.display())),
        }
    }

    pub(crate) fn path(&self) -> Result<PathBuf, String> {
        self.dir
            .as_ref()
            .map(|dir| dir.path().to_owned())
            .map_err(Clone::clone)
    }
}
