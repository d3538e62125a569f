//! When the last backup was, for the metrics page.

use std::path::Path;

use serde::{Deserialize, Serialize};
use soulbox_types::UnixMillis;

const FILE: &str = "last_backup.json";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LastBackup {
    pub(crate) at: UnixMillis,
    pub(crate) bytes: u64,
}

pub(super) fn note(data_dir: &Path, last: LastBackup) {
    let written = serde_json::to_vec(&last)
        .map_err(std::io::Error::other)
        .and_then(|text| soulbox_durable::write_soon(&data_dir.join(FILE), 0o600, &text));
    if let Err(error) = written {
        tracing::warn!(%error, "when the last backup was is not on record");
    }
}

/// `None`: there was none, or nobody knows.
pub(crate) fn last_backup(data_dir: &Path) -> Option<LastBackup> {
    serde_json::from_slice(&std::fs::read(data_dir.join(FILE)).ok()?).ok()
}
