//! Keeps the data folder's disk from filling up.
//!
//! Disk images are sparse: together they may promise more than there is. If the disk really ran
//! full, the next write of *every* sandbox would fail in the middle of its journal. So when free
//! space falls below a reserve, those that grow are paused, with their state safe, until somebody
//! wakes them; the others never notice.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use soulbox_runtime::{Error, LogLevel, Result};
use soulbox_types::{
    EndReason, PauseMode, Purpose, SandboxId, SandboxSpec, SandboxState, disk_reserve,
};

use crate::{
    DiskStats, LocalNode,
    folder::{Folder, bytes_on_disk},
    local::blocking,
};

/// Between two looks, while there is plenty, and when the reserve is near.
const CALM: Duration = Duration::from_secs(1);
const ALERT: Duration = Duration::from_millis(50);
/// Bytes per second: no disk of ours is filled faster. The next look comes before the reserve could
/// be reached at this rate.
const FASTEST_FILL: u64 = 4 << 30;
/// Of all files that the disk can hold.
const FILE_RESERVE_PERCENT: u64 = 5;
const RETRY_AFTER: Duration = Duration::from_secs(30);
/// Growth is measured over at least this long: the kernel writes in bursts.
const GROWTH_SPAN: Duration = Duration::from_millis(100);
/// Less growth than this in that time is not what fills a disk, while half of the reserve is left.
const GROWTH: u64 = 1 << 20;
/// Nor is less than this part of what the fastest one grows by: who writes a little now and then
/// need not stand still for one that writes without end.
const GROWTH_PART: u64 = 4;
/// Of a volume, in its folder.
const VOLUME_IMAGE: &str = "image.ext4";

#[derive(Debug, Clone, Copy)]
pub(crate) struct Space {
    pub(crate) free: u64,
    pub(crate) reserve: u64,
    /// Files that can still be made, and those that stay to be made by others; both 0 where the
    /// file system has no fixed number of them.
    free_files: u64,
    file_reserve: u64,
    /// What sandboxes take of it that cannot be used.
    broken: u64,
}

impl Space {
    /// Whether so many more bytes, in files of their own, leave the reserve alone.
    pub(crate) fn check_room_for(&self, bytes: u64) -> Result<()> {
        let what = if self.free_files < self.file_reserve {
            format!(
                "the data folder's disk can hold only {} more files (inodes), and {} are kept in \
                 reserve: make fewer files, or let the operator remove some there",
                self.free_files, self.file_reserve
            )
        } else if self.free.saturating_sub(self.reserve) < bytes || self.free < self.reserve {
            format!(
                "{} MiB more do not fit: the data folder's disk has {} MiB free, and {} MiB are \
                 kept in reserve{}: write less, or let the operator free space there",
                bytes.div_ceil(1 << 20),
                self.free >> 20,
                self.reserve >> 20,
                self.broken_too()
            )
        } else {
            return Ok(());
        };
        Err(Error::NoCapacity {
            what,
            retry_after: RETRY_AFTER,
        })
    }
}

impl Space {
    /// How long nobody can have reached the reserve, however fast they write.
    fn next_look(&self) -> Duration {
        let left = self.free.saturating_sub(self.reserve);
        let millis = left.saturating_mul(1000) / FASTEST_FILL;
        Duration::from_millis(millis).clamp(ALERT, CALM)
    }

    /// The growth from which on a sandbox is one of those that fill the disk. Deep in the reserve
    /// every growth counts: slow ones would use it up too.
    fn least_growth(&self) -> u64 {
        if self.free < self.reserve / 2 {
            1
        } else {
            GROWTH
        }
    }

    /// Where some of it could be had.
    pub(crate) fn broken_too(&self) -> String {
        if self.broken == 0 {
            return String::new();
        }
        let mib = self.broken.div_ceil(1 << 20);
        format!(" (broken sandboxes hold {mib} MiB of it: see `soulbox ls --broken`)")
    }
}

impl LocalNode {
    pub(crate) fn space(&self) -> Result<Space> {
        self.space_at(self.sandboxes_dir())
    }

    pub(crate) fn disk_stats(&self) -> Result<DiskStats> {
        let disk = rustix::fs::statvfs(self.sandboxes_dir())
            .map_err(|e| Error::io("could not read the free disk space", e.into()))?;
        let total = disk.f_blocks.saturating_mul(disk.f_frsize);
        Ok(DiskStats {
            total,
            free: disk.f_bavail.saturating_mul(disk.f_frsize),
            reserve: disk_reserve(total, self.min_free_disk()),
            free_files: (disk.f_files > 0).then_some(disk.f_favail),
        })
    }

    pub(crate) fn space_at(&self, folder: &Path) -> Result<Space> {
        let disk = rustix::fs::statvfs(folder)
            .map_err(|e| Error::io("could not read the free disk space", e.into()))?;
        let total = disk.f_blocks.saturating_mul(disk.f_frsize);
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let reserve = disk_reserve(total, self.min_free_disk());
        Ok(Space {
            free,
            reserve,
            free_files: disk.f_favail,
            file_reserve: disk.f_files / 100 * FILE_RESERVE_PERCENT,
            broken: self.quarantine().bytes(),
        })
    }

    /// What each running sandbox's disk takes on the host's, with the volumes that it can write to:
    /// which of those that share one is writing cannot be seen.
    fn disk_use(&self) -> HashMap<SandboxId, u64> {
        let running: Vec<_> = {
            let entries = self.entries().lock();
            let running = entries
                .values()
                .filter(|e| e.state() == SandboxState::Running);
            running
                .map(|e| (Arc::clone(&e.spec), e.folder.clone()))
                .collect()
        };
        let bytes_of = |spec: &SandboxSpec, folder: &Folder| {
            let volumes = spec.volumes.iter();
            let images = volumes.map(|v| self.volumes_dir().join(&v.volume).join(VOLUME_IMAGE));
            folder.disk_bytes() + images.map(|image| bytes_on_disk(&image)).sum::<u64>()
        };
        running
            .into_iter()
            .map(|(spec, folder)| (spec.id.clone(), bytes_of(&spec, &folder)))
            .collect()
    }

    /// What these have written that the disk has not got yet, and will get also when they stand still.
    async fn unwritten(&self, sandboxes: &[SandboxId]) -> u64 {
        let unwritten = sandboxes.iter().map(async |id| {
            let tier = self.entries().lock().get(id).map(|e| e.spec.tier);
            match tier.map(|tier| self.runtime(tier)) {
                Some(Ok(runtime)) => runtime.unwritten_bytes(id).await,
                _ => 0,
            }
        });
        join_all(unwritten).await.into_iter().sum()
    }

    async fn hold_back(self: &Arc<Self>, id: &SandboxId) {
        let reason = "the disk of the server is nearly full and this sandbox was filling it";
        let purpose = self.entries().lock().get(id).map(|e| e.spec.purpose);
        if purpose.is_some_and(|purpose| purpose != Purpose::User) {
            // Nobody would wake it.
            tracing::warn!(sandbox_id = %id, "ending it: {reason}");
            let (node, id) = (Arc::clone(self), id.clone());
            // Beside the guard, which has others to look at.
            tokio::spawn(async move { node.finish(&id, EndReason::Killed, reason).await });
            return;
        }
        tracing::warn!(sandbox_id = %id, "pausing it: {reason}");
        match Arc::clone(self)
            .pause_in_task(id.clone(), PauseMode::Memory)
            .await
        {
            Ok(()) => {
                if let Some(mut entry) = self.entries().lock().get_mut(id) {
                    entry.note(LogLevel::Error, format!("paused: {reason}"));
                }
            }
            Err(error) => {
                tracing::error!(sandbox_id = %id, %error, "it cannot be paused and is held as it is");
                if let Err(error) = self.hold(id, reason).await {
                    tracing::error!(sandbox_id = %id, %error, "it cannot be held either");
                }
            }
        }
    }
}

pub(crate) async fn guard(node: Weak<LocalNode>) {
    let mut before = Use::default();
    let mut wait = ALERT;
    loop {
        tokio::time::sleep(wait).await;
        let Some(node) = node.upgrade() else { return };
        let looking = Arc::clone(&node);
        let looked = blocking(move || {
            // So that creates need not.
            looking.admission().look();
            let space = looking.space()?;
            // Nobody needs to be looked at while there is plenty.
            let used = if space.next_look() < CALM {
                looking.disk_use()
            } else {
                HashMap::new()
            };
            Ok((space, used))
        });
        let (space, used) = match looked.await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "cannot watch the disk");
                continue;
            }
        };
        wait = space.next_look();
        let filling = growing(&before.bytes, &used, space.least_growth());
        let reserve = space.reserve + node.unwritten(&filling).await;
        if space.free < reserve {
            // All at once: while one is written out, the others would go on.
            join_all(filling.iter().map(|id| node.hold_back(id))).await;
        }
        if before.at.elapsed() >= GROWTH_SPAN {
            before = Use {
                at: Instant::now(),
                bytes: used,
            };
        }
    }
}

/// What each sandbox took of the disk at a moment.
struct Use {
    at: Instant,
    bytes: HashMap<SandboxId, u64>,
}

impl Default for Use {
    fn default() -> Self {
        Self {
            at: Instant::now(),
            bytes: HashMap::new(),
        }
    }
}

/// Those that fill the disk, the fastest first.
fn growing(
    before: &HashMap<SandboxId, u64>,
    now: &HashMap<SandboxId, u64>,
    at_least: u64,
) -> Vec<SandboxId> {
    let mut growing: Vec<_> = now
        .iter()
        .filter_map(|(id, now)| Some((now.saturating_sub(*before.get(id)?), id.clone())))
        .collect();
    growing.sort_unstable_by(|a, b| b.cmp(a));
    let fastest = growing.first().map_or(0, |(growth, _)| *growth);
    let least = at_least.max(fastest / GROWTH_PART);
    let growing = growing.into_iter().filter(|(growth, _)| *growth >= least);
    growing.map(|(_, id)| id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_fills_the_disk_is_held_back_and_who_writes_a_little_is_not() {
        let [filling, as_fast, little, idle, new] = [(); 5].map(|()| SandboxId::random());
        let mib = |bytes: u64| bytes << 20;
        let before = [(&filling, 10), (&as_fast, 10), (&little, 10), (&idle, 10)];
        let now = [
            (&filling, 50),
            (&as_fast, 30),
            (&little, 12),
            (&idle, 10),
            (&new, 90),
        ];
        let of = |uses: &[(&SandboxId, u64)]| {
            let uses = uses.iter();
            uses.map(|(id, used)| ((*id).clone(), mib(*used))).collect()
        };
        let held = growing(&of(&before), &of(&now), GROWTH);
        assert_eq!(held, [filling, as_fast]);
        let (before, now) = (of(&[(&little, 10)]), of(&[(&little, 12)]));
        assert_eq!(
            growing(&before, &now, GROWTH),
            [little],
            "alone it is what fills it"
        );
    }

    #[test]
    fn the_next_look_comes_before_the_reserve_can_be_reached() {
        let space = |free: u64| Space {
            free: free << 20,
            reserve: 360 << 20,
            free_files: 0,
            file_reserve: 0,
            broken: 0,
        };
        assert_eq!(space(100 << 10).next_look(), CALM);
        assert_eq!(
            space(1640).next_look(),
            Duration::from_millis(312),
            "1.3 GiB are written in less than a second"
        );
        assert_eq!(space(361).next_look(), ALERT);
        assert_eq!(space(0).next_look(), ALERT);
    }

    #[test]
    fn deep_in_the_reserve_who_writes_slowly_is_held_back_too() {
        let space = |free: u64| Space {
            free: free << 20,
            reserve: 360 << 20,
            free_files: 0,
            file_reserve: 0,
            broken: 0,
        };
        let slow = SandboxId::random();
        let (before, now) = ([(slow.clone(), 10)].into(), [(slow.clone(), 4106)].into());
        let held = |free| growing(&before, &now, space(free).least_growth());
        assert_eq!(held(200), [] as [SandboxId; 0]);
        assert_eq!(held(170), [slow]);
        assert_eq!(
            growing(&now, &now, 1),
            [] as [SandboxId; 0],
            "nobody who only reads"
        );
    }

    #[test]
    fn what_would_touch_the_reserve_is_refused_with_a_reason() {
        let space = Space {
            free: 100 << 20,
            reserve: 60 << 20,
            free_files: 50,
            file_reserve: 50,
            broken: 0,
        };
        let refusal = |space: Space, mib: u64| match space.check_room_for(mib << 20) {
            Ok(()) => None,
            Err(Error::NoCapacity { what, .. }) => Some(what),
            Err(other) => panic!("{other}"),
        };
        assert_eq!(refusal(space, 40), None);
        assert!(refusal(space, 41).is_some_and(|why| why.contains("41 MiB more do not fit")));
        let full = Space {
            free: 59 << 20,
            ..space
        };
        assert!(refusal(full, 0).is_some_and(|why| why.contains("60 MiB are kept")));
        let held = Space {
            broken: 7 << 20,
            ..full
        };
        assert!(refusal(held, 0).is_some_and(|why| why.contains("broken sandboxes hold 7 MiB")));
        let many = Space {
            free_files: 49,
            ..space
        };
        assert!(refusal(many, 0).is_some_and(|why| why.contains("inodes")));
        let endless = Space {
            free_files: 0,
            file_reserve: 0,
            ..space
        };
        assert_eq!(refusal(endless, 1), None);
    }
}
