//! One file per area. Every check leaves the machine as it was.

pub(crate) mod cgroups;
pub(crate) mod features;
pub(crate) mod identity;
pub(crate) mod ports;
pub(crate) mod probes;
pub(crate) mod sandbox;
pub(crate) mod storage;
pub(crate) mod tiers;

use std::path::{Path, PathBuf};

use crate::scratch;

/// A directory to try things in, or why there is none.
pub(crate) struct Scratch {
    dir: Result<scratch::Scratch, String>,
}

impl Scratch {
    pub(crate) fn new(data_dir: &Path) -> Self {
        Self {
            dir: scratch::Scratch::new(data_dir),
        }
    }

    pub(crate) fn path(&self) -> Result<PathBuf, String> {
        self.dir
            .as_ref()
            .map(|dir| dir.path().to_owned())
            .map_err(Clone::clone)
    }
}
