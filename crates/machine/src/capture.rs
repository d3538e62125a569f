//! A disk as it is at one moment.
//!
//! Where files can share blocks, that is one call. Elsewhere the image is copied while the sandbox
//! runs; then it stands still, what changed meanwhile is found by comparing and copied again, and
//! it goes on. The stand-still so depends on how fast memory is compared, not on the disk.

use std::{
    io,
    path::Path,
    process::{Command, Stdio},
};

use soulbox_runtime::{Error, Result};

use soulbox_cgroup::Cgroup;
use soulbox_sparse::{copy_differences, copy_sparse, share_blocks};

use crate::machine::FREEZE_LIMIT;

/// A sandbox that has processes.
#[expect(missing_debug_implementations, reason = "it lives for one call")]
pub struct Live<'a> {
    pub cgroup: &'a Cgroup,
    /// Puts everything written inside so far on the host's disk.
    pub sync: &'a dyn Fn() -> Result<()>,
}

/// `live` is `None` for a sandbox without processes. Blocking.
pub fn capture(live: Option<&Live<'_>>, disk: &Path, target: &Path) -> Result<()> {
    let failed = |e| Error::io("could not capture the sandbox's disk", e);
    let shares = share_blocks(disk, target).map_err(failed)?;
    if !shares {
        // Most of what is to be written is written while it still runs.
        if let Some(live) = live {
            (live.sync)()?;
        }
        copy_sparse(disk, target).map_err(failed)?;
    }
    if let Some(live) = live {
        standing_still(live.cgroup, || {
            (live.sync)()?;
            if shares {
                share_blocks(disk, target).map(drop).map_err(failed)
            } else {
                copy_differences(disk, target).map_err(failed)
            }
        })?;
    }
    replay_journal(target).map_err(failed)?;
    soulbox_durable::sync_file(target).map_err(failed)
}

/// A sandbox that was frozen before stays so: its pause is not ours to end.
fn standing_still(cgroup: &Cgroup, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let failed = |e| Error::io("could not hold the sandbox still", io::Error::other(e));
    let was_frozen = cgroup.is_frozen().map_err(failed)?;
    if !was_frozen {
        cgroup.freeze(FREEZE_LIMIT).map_err(failed)?;
    }
    let result = work();
    if !was_frozen {
        cgroup.thaw(FREEZE_LIMIT).map_err(failed)?;
    }
    result
}

/// The image was mounted when it was taken; readers of it cannot write, so this is done once here.
fn replay_journal(image: &Path) -> io::Result<()> {
    let output = Command::new("e2fsck")
        .args(["-p", "-E", "journal_only"])
        .arg(image)
        .stdin(Stdio::null())
        .output()?;
    // 0: nothing to do; 1: something was corrected.
    if let Some(0 | 1) = output.status.code() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Err(io::Error::other(format!("e2fsck: {}", text.trim())))
}
