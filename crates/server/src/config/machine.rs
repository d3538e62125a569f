//! Settings that a machine of this size can never satisfy, refused before anything is created.

use std::path::Path;

use soulbox_node::MachineGauge;

use super::{ConfigError, Settings, bad};

pub(super) fn check(settings: &Settings, data_dir: &Path) -> Result<(), ConfigError> {
    if let Some(mib) = settings.reserve_memory_mb {
        MachineGauge::check_reserve(mib.saturating_mul(1 << 20))
            .map_err(|error| bad("reserve-memory-mb", error.to_string()))?;
    }
    if let Some(mib) = settings.min_free_disk_mb
        && let Some((place, total)) = disk_of(data_dir)
        && u64::from(mib) > total
    {
        let place = place.display();
        let problem = format!(
            "{mib} MiB can never be free: the disk of {place} has {total} MiB in all; ask for less, \
             or choose another disk with --data-dir"
        );
        return Err(bad("min-free-disk-mb", problem));
    }
    Ok(())
}

/// The size in MiB. The folder may be yet to be made: its nearest ancestor is on the same disk.
fn disk_of(data_dir: &Path) -> Option<(&Path, u64)> {
    let place = data_dir.ancestors().find(|path| path.is_dir())?;
    let disk = rustix::fs::statvfs(place).ok()?;
    Some((place, disk.f_blocks.saturating_mul(disk.f_frsize) >> 20))
}
