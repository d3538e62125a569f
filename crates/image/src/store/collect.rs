//! Removes layers that nobody needs.

use std::{
    collections::HashSet,
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use super::{ImageStore, Inner};
use crate::{Result, digest::Digest, error::At};

impl ImageStore {
    /// Removes layers that are not in `keep`, have not been used for `older_than`, and that no
    /// pull under way counts on; and references that lead to them. Blocks: call it away from the
    /// runtime's threads.
    pub fn collect(&self, keep: &HashSet<PathBuf>, older_than: Duration) -> Result<Vec<PathBuf>> {
        let inner = &self.inner;
        let mut removed = Vec::new();
        for digest in inner.layer_digests() {
            let path = inner.layer(&digest);
            if keep.contains(&path) || !inner.is_older(&digest, older_than) {
                continue;
            }
            if inner.discard(&digest)? {
                removed.push(path);
            }
        }
        let here = |digest: &Digest| inner.layer(digest).is_dir();
        inner
            .references
            .forget(|found| found.layers.iter().all(here))?;
        Ok(removed)
    }
}

impl Inner {
    fn is_older(&self, digest: &Digest, age: Duration) -> bool {
        let used = std::fs::metadata(self.sources(digest)).and_then(|found| found.modified());
        match used {
            Ok(used) => SystemTime::now()
                .duration_since(used)
                .is_ok_and(|since| since >= age),
            // No note of any use: a crash between its name and the note.
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }

    fn discard(&self, digest: &Digest) -> Result<bool> {
        let grave = tempfile::Builder::new()
            .prefix("old-")
            .tempdir_in(self.temporary())
            .at("make a folder in", &self.temporary())?;
        {
            let held = self.pins.hold();
            if held.is_pinned(digest) {
                return Ok(false);
            }
            // The proofs first: a layer without them is only fetched again, never given away.
            take(&self.sources(digest), &grave.path().join("sources"))?;
            take(&self.layer(digest), &grave.path().join("layer"))?;
        }
        let path = grave.path().to_owned();
        grave.close().at("remove", &path)?;
        Ok(true)
    }
}

fn take(from: &Path, to: &Path) -> Result<()> {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.at("remove", from),
    }
}
