//! Files that are installed and removed, each told, or only told.

use std::{fs, io, path::Path};

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};

use super::layout::Layout;
use crate::{output, report::advice};

/// What every system has, empty or not.
const ALWAYS_THERE: [&str; 5] = ["bin", "lib", "share", "man", "system"];

#[derive(Debug, Clone, Copy)]
pub(super) struct Files {
    /// Only tell.
    pub(super) dry_run: bool,
}

impl Files {
    /// `doing` is the beginning of a sentence: "write the unit /etc/…".
    pub(super) fn tell(self, doing: &str) -> Result<()> {
        let would = if self.dry_run { "would " } else { "" };
        output::text(&output::printable(&format!("{would}{doing}")))
    }

    /// Whether it was another one.
    pub(super) fn write(self, path: &Path, content: &[u8]) -> Result<bool> {
        if fs::read(path).is_ok_and(|there| there == content) {
            return Ok(false);
        }
        if !self.dry_run {
            let cannot = || format!("could not write {}", path.display());
            let folder = path.parent().with_context(cannot)?;
            soulbox_durable::make_folder(folder, 0o755).with_context(cannot)?;
            soulbox_durable::write(path, 0o644, content).with_context(cannot)?;
        }
        Ok(true)
    }

    pub(super) fn link(self, path: &Path, to: &Path) -> Result<()> {
        if self.dry_run || fs::read_link(path).is_ok_and(|there| there == to) {
            return Ok(());
        }
        let cannot = || format!("could not make the link {}", path.display());
        let folder = path.parent().with_context(cannot)?;
        soulbox_durable::make_folder(folder, 0o755).with_context(cannot)?;
        soulbox_durable::remove(path).with_context(cannot)?;
        std::os::unix::fs::symlink(to, path).with_context(cannot)
    }

    /// With the folders above it that are empty then and were made for it.
    pub(super) fn remove(self, path: &Path) -> Result<()> {
        if self.dry_run || fs::symlink_metadata(path).is_err() {
            return Ok(());
        }
        soulbox_durable::remove(path)
            .with_context(|| format!("could not remove {}", path.display()))?;
        for folder in path.ancestors().skip(1) {
            let name = folder.file_name().unwrap_or_default();
            let stays = ALWAYS_THERE.iter().any(|each| name == *each);
            if stays || fs::remove_dir(folder).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// One that is ours alone, with everything in it.
    pub(super) fn remove_folder(self, path: &Path) -> Result<()> {
        if self.dry_run || !path.exists() {
            return Ok(());
        }
        fs::remove_dir_all(path).with_context(|| format!("could not remove {}", path.display()))
    }
}

/// One at a time: held until it is dropped.
pub(super) fn lock(layout: &Layout) -> Result<fs::File> {
    let path = layout.own_folder().join("lock");
    let cannot = || format!("could not lock {}", path.display());
    soulbox_durable::make_folder(&layout.own_folder(), 0o755).with_context(cannot)?;
    let file = fs::File::create(&path).with_context(cannot)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(advice(
            "another `soulbox install` or `uninstall` is at work",
            "wait for its end",
        )),
        Err(error) => Err(io::Error::from(error)).with_context(cannot),
    }
}
