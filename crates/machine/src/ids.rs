//! Which host ids sandboxes run as.
//!
//! Every sandbox has 65,536 ids of the host to itself. They come from 0x70000000 to 0x7fbfffff: above
//! what distributions give to users, subordinate ids, LXD and `systemd-nspawn` (up to 0x6fffffff),
//! below the range of systemd's foreign images (0x7ffe0000), and below 2^31, from where on parts of
//! the kernel read an id as a negative number (devpts before Linux 6.15) and Podman has its own. They
//! never reach a disk, so any start may take others.
//!
//! Several servers share this room, blocks of it at a time. Who has a block holds a lock on a file
//! that only root can open; it ends with the process. Sandboxes outlive their server, so a block is
//! also taken while any process of the machine has an id of it, which the kernel knows best.

use std::{
    collections::HashMap,
    fs::{DirBuilder, File, OpenOptions},
    io,
    ops::Range,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use soulbox_runtime::{Error, Result};
use soulbox_types::id::fill_random;

const FIRST: u32 = 0x7000_0000;
const IDS_PER_SANDBOX: u32 = 65_536;
const RANGES_PER_BLOCK: u32 = 64;
const BLOCKS: u32 = 63;
/// Of all servers of a machine together.
pub(crate) const RANGES: u32 = BLOCKS * RANGES_PER_BLOCK;
/// They number users up to 2,000,200,000.
const ABOVE_DIRECTORY_SERVICES: u32 = 29;
const CLAIMS: &str = "/run/soulbox/ids";
/// Others who come and go at the same moment make a claim begin again.
const ATTEMPTS: u32 = 100;
const SUBORDINATE: [&str; 2] = ["/etc/subuid", "/etc/subgid"];

/// The ranges of ids that this server has, and which network slot uses which.
#[derive(Debug)]
pub(crate) struct HostIds {
    claims: PathBuf,
    pages: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    blocks: HashMap<u32, Claim>,
    free: Vec<u32>,
    of_slot: HashMap<u32, u32>,
}

impl HostIds {
    pub(crate) fn new() -> Self {
        Self::with_claims(PathBuf::from(CLAIMS))
    }

    fn with_claims(claims: PathBuf) -> Self {
        Self {
            claims,
            pages: Mutex::default(),
        }
    }

    /// The first id for the sandbox in a slot that the caller holds. `slot_is_free` tells of slots
    /// that nobody has and whose former sandbox is gone; their ids are anybody's. Blocks.
    pub(crate) fn first_id(&self, slot: u32, slot_is_free: impl Fn(u32) -> bool) -> Result<u32> {
        let mut pages = self.pages.lock();
        if let Some(range) = pages.of_slot.get(&slot) {
            return Ok(first_of(*range));
        }
        pages.drop_lost_blocks();
        if pages.free.is_empty() {
            pages.take_back(slot_is_free);
        }
        if pages.free.is_empty() {
            let (block, claim, free) = self.claim_any(&pages.blocks)?;
            pages.blocks.insert(block, claim);
            pages.free = free;
        }
        let range = pages.free.pop().ok_or_else(none_left)?;
        pages.of_slot.insert(slot, range);
        Ok(first_of(range))
    }

    /// Those of servers that were killed. Whoever can lock one may remove it.
    fn remove_old_marks(&self) {
        let marks = std::fs::read_dir(&self.claims);
        for mark in marks.into_iter().flatten().flatten() {
            if let Some(block) = mark.file_name().to_str().and_then(|name| name.parse().ok()) {
                // Removed with this value.
                let _mark = Claim::take(&self.claims, block);
            }
        }
    }

    /// A block that no process has an id of; when there is none left, what is free of one.
    ///
    /// Sandboxes of earlier servers, ours among them, keep their ids: their processes show them.
    fn claim_any(&self, ours: &HashMap<u32, Claim>) -> Result<(u32, Claim, Vec<u32>)> {
        let reserved: Vec<_> = SUBORDINATE
            .iter()
            .flat_map(std::fs::read_to_string)
            .flat_map(|text| subordinate_ids(&text))
            .collect();
        let blocks: Vec<u32> = in_random_order()
            .filter(|block| !ours.contains_key(block))
            .filter(|block| !reserved.iter().any(|other| overlap(other, &ids_of(*block))))
            .collect();
        for least in [RANGES_PER_BLOCK, 1] {
            for block in &blocks {
                let Some(claim) = Claim::take(&self.claims, *block).map_err(unclaimed)? else {
                    continue;
                };
                // Only now: before, its owner could have started more, and died.
                let free = unused_ranges(*block).map_err(unclaimed)?;
                if free.len() >= least as usize {
                    return Ok((*block, claim, free));
                }
            }
        }
        Err(none_left())
    }
}

/// Servers that do not see each other's claims, each with a `/run` of its own, shall not begin with
/// the same one. First those above what directory services give to their users.
fn in_random_order() -> impl Iterator<Item = u32> {
    let mut random = [0];
    fill_random(&mut random);
    let turn = |blocks: Range<u32>| {
        let count = blocks.end - blocks.start;
        let shift = u32::from(random[0]) % count;
        blocks
            .clone()
            .map(move |block| blocks.start + (block - blocks.start + shift) % count)
    };
    turn(ABOVE_DIRECTORY_SERVICES..BLOCKS).chain(turn(0..ABOVE_DIRECTORY_SERVICES))
}

impl Drop for HostIds {
    fn drop(&mut self) {
        self.pages.get_mut().blocks.clear();
        self.remove_old_marks();
        // Another server may have files there.
        let _others = std::fs::remove_dir(&self.claims);
        let _others = self.claims.parent().map(std::fs::remove_dir);
    }
}

impl Pages {
    /// Somebody removed our mark: others may have taken the block since.
    fn drop_lost_blocks(&mut self) {
        let before = self.blocks.len();
        self.blocks.retain(|_, claim| claim.is_there());
        if self.blocks.len() < before {
            tracing::warn!("somebody removed files of {CLAIMS}; taking other ids");
            let blocks = &self.blocks;
            self.free
                .retain(|range| blocks.contains_key(&block_of(*range)));
        }
    }

    fn take_back(&mut self, slot_is_free: impl Fn(u32) -> bool) {
        let (free, blocks) = (&mut self.free, &self.blocks);
        self.of_slot.retain(|slot, range| {
            let back = slot_is_free(*slot);
            if back && blocks.contains_key(&block_of(*range)) {
                free.push(*range);
            }
            !back
        });
    }
}

/// A locked file. It goes with its owner; after a crash the lock does, and the file stays.
#[derive(Debug)]
struct Claim {
    file: File,
    path: PathBuf,
}

impl Claim {
    /// `None`: another server has it.
    fn take(folder: &Path, block: u32) -> io::Result<Option<Self>> {
        let path = folder.join(block.to_string());
        for _ in 0..ATTEMPTS {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)?;
            let opened = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path);
            let file = match opened {
                // Its folder was removed by a server that left.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                other => other?,
            };
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
            // Its former owner may have removed it between the two calls.
            if file.metadata()?.nlink() > 0 {
                return Ok(Some(Self { file, path }));
            }
        }
        Err(io::Error::other(format!(
            "{} is removed again and again",
            path.display()
        )))
    }
}

impl Claim {
    /// The file at its path is still ours.
    fn is_there(&self) -> bool {
        let at_path = std::fs::symlink_metadata(&self.path);
        let (Ok(at_path), Ok(ours)) = (at_path, self.file.metadata()) else {
            return false;
        };
        (at_path.dev(), at_path.ino()) == (ours.dev(), ours.ino())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Still locked: nobody else takes this file for theirs.
        if self.is_there()
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::debug!(%error, "the mark of a block of ids stays");
        }
    }
}

/// The ranges of a block of which no process of this machine has an id in its user namespace.
fn unused_ranges(block: u32) -> io::Result<Vec<u32>> {
    let first = block * RANGES_PER_BLOCK;
    let mut unused: Vec<u32> = (first..first + RANGES_PER_BLOCK).rev().collect();
    let ours = std::fs::read_to_string("/proc/self/uid_map")?;
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        if !entry.file_name().as_encoded_bytes()[0].is_ascii_digit() {
            continue;
        }
        let map = match std::fs::read_to_string(entry.path().join("uid_map")) {
            Ok(map) => map,
            Err(error) if is_gone(&error) => continue,
            Err(error) => return Err(error),
        };
        if map != ours {
            for used in host_ids(&map) {
                unused.retain(|range| !overlap(&used, &ids_of_range(*range)));
            }
        }
    }
    Ok(unused)
}

/// It ended meanwhile. The kernel says that its map is invalid if that was between finding and
/// opening it.
fn is_gone(error: &io::Error) -> bool {
    use rustix::io::Errno;

    matches!(
        Errno::from_io_error(error),
        Some(Errno::NOENT | Errno::SRCH | Errno::INVAL)
    )
}

/// Lines of `inside outside count`.
fn host_ids(map: &str) -> impl Iterator<Item = Range<u32>> {
    map.lines().filter_map(|line| {
        let mut numbers = line.split_ascii_whitespace().skip(1).map(str::parse::<u32>);
        let (first, count) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        Some(first..first.saturating_add(count))
    })
}

/// Lines of `user:first:count`.
fn subordinate_ids(text: &str) -> Vec<Range<u32>> {
    let range = |line: &str| {
        let mut fields = line
            .split(':')
            .skip(1)
            .map(|field| field.trim().parse().ok());
        let (first, count): (u32, u32) = (fields.next()??, fields.next()??);
        Some(first..first.saturating_add(count))
    };
    text.lines().filter_map(range).collect()
}

fn overlap(one: &Range<u32>, other: &Range<u32>) -> bool {
    one.start < other.end && other.start < one.end
}

fn ids_of(block: u32) -> Range<u32> {
    let first = block * RANGES_PER_BLOCK;
    first_of(first)..first_of(first + RANGES_PER_BLOCK)
}

fn block_of(range: u32) -> u32 {
    range / RANGES_PER_BLOCK
}

fn ids_of_range(range: u32) -> Range<u32> {
    first_of(range)..first_of(range + 1)
}

fn first_of(range: u32) -> u32 {
    FIRST + range * IDS_PER_SANDBOX
}

fn none_left() -> Error {
    Error::NoCapacity {
        what: format!(
            "host ids: all {RANGES} ranges of this machine are in use by sandboxes of all servers, \
             or reserved in /etc/subuid"
        ),
        retry_after: Duration::from_secs(2),
    }
}

fn unclaimed(source: io::Error) -> Error {
    Error::io("could not reserve host ids for sandboxes", source)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_process_that_ends_while_its_map_is_opened_is_gone() {
        use std::os::fd::AsRawFd;

        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .unwrap();
        let map = rustix::fs::open(
            format!("/proc/{}/uid_map", child.id()),
            rustix::fs::OFlags::PATH,
            rustix::fs::Mode::empty(),
        )
        .unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let found = std::fs::read_to_string(format!("/proc/self/fd/{}", map.as_raw_fd()));
        let error = found.unwrap_err();
        assert!(is_gone(&error), "{error}");
    }

    use super::*;

    fn server(folder: &Path) -> HostIds {
        HostIds::with_claims(folder.join("ids"))
    }

    const NONE_FREE: fn(u32) -> bool = |_| false;

    fn block_of_id(id: u32) -> u32 {
        block_of((id - FIRST) / IDS_PER_SANDBOX)
    }

    #[test]
    fn ids_fit_into_what_every_kernel_reads_and_nobody_else_uses() {
        let (first, last) = (first_of(0), ids_of(BLOCKS - 1).end);
        assert!(first > 0x6fff_ffff, "systemd-nspawn");
        assert!(last <= 0x7ffe_0000, "systemd's foreign ids");
        assert!(i32::try_from(last).is_ok(), "devpts before 6.15");
    }

    #[test]
    fn each_slot_has_ids_of_its_own_and_keeps_them() {
        let folder = tempfile::tempdir().unwrap();
        let ids = server(folder.path());
        let mut given: Vec<u32> = (0..200)
            .map(|slot| ids.first_id(slot, NONE_FREE).unwrap())
            .collect();
        assert_eq!(ids.first_id(7, NONE_FREE).unwrap(), given[7]);
        given.sort_unstable();
        assert!(
            given
                .windows(2)
                .all(|pair| pair[1] - pair[0] >= IDS_PER_SANDBOX)
        );
    }

    #[test]
    fn ids_of_slots_that_became_free_are_given_again_before_more_are_taken() {
        let folder = tempfile::tempdir().unwrap();
        let ids = server(folder.path());
        for slot in 0..10 * RANGES_PER_BLOCK {
            ids.first_id(slot, |other| other + 10 < slot).unwrap();
        }
        assert_eq!(ids.pages.lock().blocks.len(), 1);
    }

    #[test]
    fn two_servers_never_share_a_block_and_one_that_leaves_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (server(folder.path()), server(folder.path()));
        let first = one.first_id(0, NONE_FREE).unwrap();
        let second = other.first_id(0, NONE_FREE).unwrap();
        assert_ne!(block_of_id(first), block_of_id(second));
        drop((one, other));
        assert!(!folder.path().join("ids").exists());
    }

    #[test]
    fn marks_of_killed_servers_go_and_those_of_living_ones_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (server(folder.path()), server(folder.path()));
        other.first_id(0, NONE_FREE).unwrap();
        let marks = folder.path().join("ids");
        std::fs::write(marks.join("62"), "").unwrap();
        std::fs::write(marks.join("0"), "").unwrap();
        drop(one);
        assert_eq!(std::fs::read_dir(&marks).unwrap().count(), 1);
        drop(other);
        assert!(!marks.exists());
    }

    #[test]
    fn ids_of_a_block_whose_mark_was_removed_are_given_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let one = server(folder.path());
        let first = one.first_id(0, NONE_FREE).unwrap();
        std::fs::remove_dir_all(folder.path().join("ids")).unwrap();
        let other = server(folder.path());
        other.claim_any(&HashMap::new()).unwrap();
        let second = one.first_id(1, NONE_FREE).unwrap();
        assert_ne!(block_of_id(first), block_of_id(second));
        assert_eq!(one.pages.lock().blocks.len(), 1);
    }

    #[test]
    fn a_mark_that_another_server_made_in_place_of_ours_stays() {
        let folder = tempfile::tempdir().unwrap();
        let ours = Claim::take(folder.path(), 3).unwrap().unwrap();
        std::fs::remove_file(folder.path().join("3")).unwrap();
        let theirs = Claim::take(folder.path(), 3).unwrap().unwrap();
        drop(ours);
        assert!(theirs.is_there());
    }

    #[test]
    fn every_block_has_its_turn_and_those_above_directory_services_first() {
        let mut order: Vec<u32> = in_random_order().collect();
        assert!(first_of(order[0] * RANGES_PER_BLOCK) > 2_000_200_000);
        let low = order
            .iter()
            .position(|block| ids_of(*block).start <= 2_000_200_000);
        assert_eq!(low, Some((BLOCKS - ABOVE_DIRECTORY_SERVICES) as usize));
        order.sort_unstable();
        assert_eq!(order, (0..BLOCKS).collect::<Vec<_>>());
    }

    #[test]
    fn maps_and_subordinate_ids_are_read_as_the_kernel_and_shadow_write_them() {
        let map = "         0 2130706432      65536\n";
        let read: Vec<_> = host_ids(map).map(|ids| (ids.start, ids.end)).collect();
        assert_eq!(read, [(2_130_706_432, 2_130_771_968)]);
        let whole = host_ids("0 0 4294967295\n").next().unwrap();
        assert!(overlap(&whole, &ids_of(0)));
        let subordinate = "dev:100000:65536\nbroken\ncontainers:2147483647:2147483648\n";
        assert_eq!(
            subordinate_ids(subordinate),
            [100_000..165_536, 2_147_483_647..u32::MAX]
        );
    }

    /// Of a server that died and left a sandbox, say.
    #[test]
    fn ids_that_a_process_has_are_not_given_to_others() {
        let mut child = std::process::Command::new("unshare")
            .args(["--user", "sleep", "60"])
            .spawn()
            .unwrap();
        // The lowest block comes last.
        let (pid, begun) = (child.id(), std::time::Instant::now());
        let map = format!("0 {} 65536\n", first_of(5));
        // A map can be written once the namespace is there.
        while std::fs::write(format!("/proc/{pid}/uid_map"), &map).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20));
            std::thread::yield_now();
        }
        let unused = unused_ranges(0).unwrap();
        assert!(!unused.contains(&5) && unused.len() < RANGES_PER_BLOCK as usize);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(unused_ranges(0).unwrap().contains(&5));
    }
}
