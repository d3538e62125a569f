//! Whether it fits.

use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use soulbox_types::disk_reserve;

use crate::{Error, Result, error::At};

/// For folders, names and what grows meanwhile.
const MARGIN: u64 = 32 << 20;

/// What a file or folder takes of its disk. What cannot be read counts as nothing: it is only an
/// estimate.
pub fn bytes_on_disk(path: &Path) -> u64 {
    let (mut bytes, mut waiting): (u64, Vec<PathBuf>) = (0, vec![path.to_owned()]);
    while let Some(path) = waiting.pop() {
        let Ok(metadata) = std::fs::symlink_metadata(&path) else {
            continue;
        };
        bytes += metadata.blocks() * 512;
        if metadata.is_dir()
            && let Ok(entries) = std::fs::read_dir(&path)
        {
            waiting.extend(entries.flatten().map(|entry| entry.path()));
        }
    }
    bytes
}

/// Whether so many bytes more fit where `target` is. On the disk of `data_dir`, where a server may
/// run, its reserve stays free: a backup must not be why sandboxes are paused.
pub fn check_space(target: &Path, bytes: u64, data_dir: Option<&Path>) -> Result<()> {
    let disk = rustix::fs::statvfs(target).at("read the free space of", target)?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let device = |path: &Path| std::fs::metadata(path).map(|found| found.dev()).ok();
    let shared = data_dir.is_some_and(|data| device(data) == device(target));
    let total = disk.f_blocks.saturating_mul(disk.f_frsize);
    let reserve = if shared { disk_reserve(total, 0) } else { 0 };
    let needed = bytes.saturating_add(MARGIN.min(total / 100));
    if free < needed.saturating_add(reserve) {
        return Err(Error::NoSpace {
            path: target.to_owned(),
            free,
            needed,
            reserve,
        });
    }
    Ok(())
}
