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

const FIRST: u32 = 0x7000_0000;
const IDS_PER_SANDBOX: u32 = 65_536;
const RANGES_PER_BLOCK: u32 = 64;
const BLOCKS: u32 = 63;
/// Of all servers of a machine together.
pub(crate) const RANGES: u32 = BLOCKS * RANGES_PER_BLOCK;
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
        if pages.free.is_empty() {
            pages.take_back(slot_is_free);
        }
        if pages.free.is_empty() {
            let (block, claim) = self.claim_any(&pages.blocks)?;
            pages.add(block, claim);
        }
        let range = pages.free.pop().ok_or_else(none_left)?;
        pages.of_slot.insert(slot, range);
        Ok(first_of(range))
    }

    /// The sandbox in this slot was started by an earlier server: its ids are not to be given to
    /// others. Blocks. It has them whatever comes of it: a block that cannot be had (a full `/run`)
    /// is nobody else's while it lives, and not ours to give out.
    pub(crate) fn adopt(&self, slot: u32, first_id: u32) {
        let Some(range) = range_of(first_id) else {
            // Of a version that had its ids elsewhere.
            return;
        };
        let mut pages = self.pages.lock();
        let block = block_of(range);
        if !pages.blocks.contains_key(&block) {
            match Claim::take(&self.claims, block) {
                Ok(Some(claim)) => pages.add(block, claim),
                Ok(None) => tracing::warn!(first_id, "another server has a sandbox's block of ids"),
                Err(error) => tracing::warn!(first_id, %error, "a block of ids is not ours alone"),
            }
        }
        pages.free.retain(|free| *free != range);
        pages.of_slot.insert(slot, range);
    }

    fn claim_any(&self, ours: &HashMap<u32, Claim>) -> Result<(u32, Claim)> {
        let reserved: Vec<_> = SUBORDINATE
            .iter()
            .flat_map(std::fs::read_to_string)
            .flat_map(|text| subordinate_ids(&text))
            .collect();
        // From the top: directory services number their users up to 2,000,200,000.
        for block in (0..BLOCKS).rev().filter(|block| !ours.contains_key(block)) {
            let ids = ids_of(block);
            if reserved.iter().any(|other| overlap(other, &ids)) {
                continue;
            }
            if let Some(claim) = Claim::take(&self.claims, block).map_err(unclaimed)?
                && !somebody_has(&ids).map_err(unclaimed)?
            {
                return Ok((block, claim));
            }
        }
        Err(none_left())
    }
}

impl Drop for HostIds {
    fn drop(&mut self) {
        self.pages.get_mut().blocks.clear();
        // Another server may have files there.
        let _others = std::fs::remove_dir(&self.claims);
        let _others = self.claims.parent().map(std::fs::remove_dir);
    }
}

impl Pages {
    fn add(&mut self, block: u32, claim: Claim) {
        self.blocks.insert(block, claim);
        let first = block * RANGES_PER_BLOCK;
        self.free.extend((first..first + RANGES_PER_BLOCK).rev());
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
    _file: File,
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
                return Ok(Some(Self { _file: file, path }));
            }
        }
        Err(io::Error::other(format!(
            "{} is removed again and again",
            path.display()
        )))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Still locked: nobody else takes this file for theirs.
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(%error, "the mark of a block of ids stays");
        }
    }
}

/// The first host id that a process's user namespace gives away.
pub(crate) fn first_id_of(pid: i32) -> io::Result<Option<u32>> {
    let map = std::fs::read_to_string(format!("/proc/{pid}/uid_map"))?;
    Ok(host_ids(&map).next().map(|ids| ids.start))
}

/// Whether a process of this machine has one of these ids in its user namespace.
fn somebody_has(ids: &Range<u32>) -> io::Result<bool> {
    let ours = std::fs::read_to_string("/proc/self/uid_map")?;
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        if !entry.file_name().as_encoded_bytes()[0].is_ascii_digit() {
            continue;
        }
        // It may have ended meanwhile.
        let map = std::fs::read_to_string(entry.path().join("uid_map")).unwrap_or_default();
        if map != ours && host_ids(&map).any(|other| overlap(&other, ids)) {
            return Ok(true);
        }
    }
    Ok(false)
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

fn first_of(range: u32) -> u32 {
    FIRST + range * IDS_PER_SANDBOX
}

fn range_of(first_id: u32) -> Option<u32> {
    let range = first_id.checked_sub(FIRST)? / IDS_PER_SANDBOX;
    (range < RANGES).then_some(range)
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
    use super::*;

    fn server(folder: &Path) -> HostIds {
        HostIds::with_claims(folder.join("ids"))
    }

    const NONE_FREE: fn(u32) -> bool = |_| false;

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
        assert_ne!(
            range_of(first).unwrap() / RANGES_PER_BLOCK,
            range_of(second).unwrap() / RANGES_PER_BLOCK
        );
        drop((one, other));
        assert!(!folder.path().join("ids").exists());
    }

    #[test]
    fn adopted_ids_are_not_given_to_others() {
        let folder = tempfile::tempdir().unwrap();
        let ids = server(folder.path());
        let taken = ids_of(BLOCKS - 1).start;
        ids.adopt(400, taken);
        for slot in 0..RANGES_PER_BLOCK - 1 {
            assert_ne!(ids.first_id(slot, NONE_FREE).unwrap(), taken);
        }
        assert_eq!(ids.first_id(400, NONE_FREE).unwrap(), taken);
        // Of a version before this one.
        ids.adopt(401, 0x8000_0000);
    }

    #[test]
    fn a_block_that_cannot_be_marked_is_not_given_out_but_its_sandbox_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let ids = server(folder.path());
        // Where the folder of marks should be.
        std::fs::write(folder.path().join("ids"), "").unwrap();
        let taken = ids_of(BLOCKS - 1).start;
        ids.adopt(400, taken);
        assert_eq!(ids.first_id(400, NONE_FREE).unwrap(), taken);
        std::fs::remove_file(folder.path().join("ids")).unwrap();
        let all_free: fn(u32) -> bool = |_| true;
        ids.first_id(1, all_free).unwrap();
        let pages = ids.pages.lock();
        let in_unmarked = |range: &&u32| !pages.blocks.contains_key(&block_of(**range));
        assert_eq!(pages.free.iter().find(in_unmarked), None);
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

    #[test]
    fn a_process_with_such_ids_is_seen() {
        let mut child = std::process::Command::new("unshare")
            .args(["--user", "sleep", "60"])
            .spawn()
            .unwrap();
        let ids = 0x7fff_0000..0x7fff_0100_u32;
        let (pid, begun) = (child.id(), std::time::Instant::now());
        // A map can be written once the namespace is there.
        while std::fs::write(format!("/proc/{pid}/uid_map"), "0 2147418112 16\n").is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20));
            std::thread::yield_now();
        }
        assert!(somebody_has(&ids).unwrap());
        assert_eq!(
            first_id_of(i32::try_from(pid).unwrap()).unwrap(),
            Some(0x7fff_0000)
        );
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!somebody_has(&ids).unwrap());
    }
}
