//! A disk as it is at one moment.
//!
//! Where files can share blocks, that is one call. Elsewhere the image is copied while the sandbox
//! runs; then it stands still, what changed meanwhile is found by comparing and copied again, and
//! it goes on. The stand-still so depends on how fast memory is compared, not on the disk.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::Path,
    process::{Command, Stdio},
};

use soulbox_runtime::{Error, Result};

use soulbox_cgroup::Cgroup;

use crate::{
    disk::{copy_sparse, data_ranges, share_blocks},
    machine::FREEZE_LIMIT,
};

const CHUNK: usize = 1 << 20;
const BLOCK: usize = 4096;

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

/// Makes `target` the same as `source`, writing only blocks that are not.
fn copy_differences(source: &Path, target: &Path) -> io::Result<()> {
    let source = File::open(source)?;
    let target = OpenOptions::new().read(true).write(true).open(target)?;
    // What either has may differ; where both have holes they agree.
    let mut ranges = data_ranges(&source)?;
    ranges.extend(data_ranges(&target)?);
    ranges.sort_unstable();
    let (mut ours, mut theirs) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut done = 0;
    for (start, end) in ranges {
        let mut at = start.max(done);
        while at < end {
            let length = CHUNK.min(usize::try_from(end - at).unwrap_or(CHUNK));
            source.read_exact_at(&mut ours[..length], at)?;
            target.read_exact_at(&mut theirs[..length], at)?;
            if ours[..length] != theirs[..length] {
                write_differences(&target, at, &ours[..length], &theirs[..length])?;
            }
            at += length as u64;
        }
        done = done.max(end);
    }
    Ok(())
}

fn write_differences(target: &File, start: u64, new: &[u8], old: &[u8]) -> io::Result<()> {
    let mut at = start;
    for (new, old) in new.chunks(BLOCK).zip(old.chunks(BLOCK)) {
        if new != old {
            target.write_all_at(new, at)?;
        }
        at += new.len() as u64;
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_pass_makes_the_copy_equal() {
        let folder = tempfile::tempdir().unwrap();
        let (source, target) = (folder.path().join("source"), folder.path().join("target"));
        let file = File::create(&source).unwrap();
        file.set_len(16 << 20).unwrap();
        file.write_all_at(&[1; 10_000], 4096).unwrap();
        file.write_all_at(&[2; 5000], 9 << 20).unwrap();
        copy_sparse(&source, &target).unwrap();
        // Meanwhile: changed, added, and freed.
        file.write_all_at(&[3; 100], 5000).unwrap();
        file.write_all_at(&[4; 9000], 12 << 20).unwrap();
        file.write_all_at(&[0; 5000], 9 << 20).unwrap();
        copy_differences(&source, &target).unwrap();
        assert!(std::fs::read(&source).unwrap() == std::fs::read(&target).unwrap());
    }
}
