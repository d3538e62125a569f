//! How far an upgrade has come, on the disk: whoever is killed in the middle of one goes on there.

use std::{io, path::PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::layout::Layout;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "stage", rename_all = "kebab-case")]
pub(super) enum Stage {
    /// The former program is kept, and the new one has never been started.
    Replacing,
    /// The database is kept as it was, and the new program may have changed it.
    DatabaseKept,
    /// The program becomes the file with this number.
    RollingBack { inode: u64 },
}

#[derive(Debug)]
pub(super) struct Unfinished {
    path: PathBuf,
}

impl Unfinished {
    pub(super) fn of(layout: &Layout) -> Self {
        Self {
            path: layout.own_folder().join("unfinished.json"),
        }
    }

    pub(super) fn read(&self) -> Result<Option<Stage>> {
        match std::fs::read(&self.path) {
            Ok(text) => {
                Ok(Some(serde_json::from_slice(&text).with_context(|| {
                    format!("{} is damaged", self.path.display())
                })?))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => {
                Err(error).with_context(|| format!("could not read {}", self.path.display()))
            }
        }
    }

    pub(super) fn write(&self, stage: Stage) -> Result<()> {
        let text = serde_json::to_vec(&stage)?;
        soulbox_durable::write(&self.path, 0o644, &text)
            .with_context(|| format!("could not write {}", self.path.display()))
    }

    pub(super) fn remove(&self) -> Result<()> {
        soulbox_durable::remove(&self.path)
            .with_context(|| format!("could not remove {}", self.path.display()))
    }
}
