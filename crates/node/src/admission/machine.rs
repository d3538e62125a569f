//! The real machine: its reserve, the slice of all sandboxes, and what is used of both.

use std::{fs, os::unix::fs::MetadataExt};

use parking_lot::Mutex;
use rustix::process::{Resource as Limited, getrlimit};
use soulbox_cgroup::{Ceiling, Manager, SliceLimits};
use tokio::time::Instant;

use super::{Gauge, Level, Reading, Resource, shared};
use crate::{KernelMemory, pool::Memory};

/// Kept from sandboxes: of the machine this part, and not less than these, but of a small one
/// never more than a quarter.
const RESERVE_PERCENT: u64 = 5;
const LEAST_RESERVE: u64 = 512 << 20;
const LEAST_THREADS: u64 = 512;
const MOST_PART: u64 = 4;
/// Less is not worth a slice: not one sandbox would live in it.
const LEAST_SLICE: u64 = 64 << 20;
/// Half of what the server has: it answers also when every sandbox computes.
const CPU_WEIGHT: u16 = 50;
/// Descriptors for the server's own use: clients, streams, its database.
const FILES_PART: u64 = 8;
const MOST_FILES: u64 = 1024;
/// Counting descriptors one by one, where the kernel does not tell the number.
const COUNT_EVERY: std::time::Duration = std::time::Duration::from_secs(1);
/// Of the slice, from which on page cache is told apart.
const EXACT_PART: u64 = 2;

#[derive(Debug, thiserror::Error)]
pub enum SliceError {
    #[error("/proc/meminfo does not say how much memory this machine has")]
    NoMemory,
    #[error(
        "a reserve of {} MiB leaves {} MiB of this machine's {} MiB for sandboxes, which is too little",
        reserve >> 20,
        total.saturating_sub(*reserve) >> 20,
        total >> 20
    )]
    NothingLeft { reserve: u64, total: u64 },
}

#[derive(Debug)]
pub struct MachineGauge {
    slice: Option<ReservedSlice>,
    /// Memory that has to stay available at a create.
    spare: u64,
    /// What the kernel numbers at most, less the reserve.
    thread_bound: u64,
    /// Descriptors that were counted one by one, and when.
    counted: Mutex<Option<(Instant, u64)>>,
}

#[derive(Debug)]
struct ReservedSlice {
    cgroups: Manager,
    limits: SliceLimits,
    /// Whether this server has only a part of the machine.
    contained: bool,
}

impl MachineGauge {
    pub fn without_slice() -> Self {
        let total = Memory::of_this_machine().map_or(0, |memory| memory.total);
        Self {
            slice: None,
            spare: usual_reserve(total, LEAST_RESERVE),
            thread_bound: less_reserve(thread_limit()),
            counted: Mutex::default(),
        }
    }

    /// Puts all sandboxes into a slice, those that are there and those that come. `reserve`: of
    /// memory, in bytes. What the kernel refuses is logged: sandboxes then have less of a slice.
    pub fn with_slice(cgroups: Manager, reserve: Option<u64>) -> Result<Self, SliceError> {
        let ceilings = (cgroups.memory_ceiling(), cgroups.pids_ceiling());
        let total = memory_within(ceilings.0)?;
        let usual = usual_reserve(total, LEAST_RESERVE);
        let reserve = reserve.unwrap_or(usual);
        let memory_bytes = left_of(total, reserve)?;
        let threads =
            limit_of(ceilings.1).map_or(thread_limit(), |limit| limit.min(thread_limit()));
        let limits = SliceLimits {
            memory_bytes,
            pids: less_reserve(threads),
            cpu_weight: CPU_WEIGHT,
        };
        for error in cgroups.set_slice(&limits) {
            tracing::warn!(%error, "a part of the slice of all sandboxes could not be set");
        }
        tracing::info!(
            memory_mib = limits.memory_bytes >> 20,
            reserve_mib = reserve >> 20,
            pids = limits.pids,
            "all sandboxes together are bounded"
        );
        Ok(Self {
            slice: Some(ReservedSlice {
                cgroups,
                limits,
                contained: ceilings.0.is_some() || ceilings.1.is_some(),
            }),
            // Of a larger reserve the server and the system may have used the rest already.
            spare: reserve.min(usual),
            thread_bound: less_reserve(thread_limit()),
            counted: Mutex::default(),
        })
    }

    /// Whether a slice with this reserve of memory, in bytes, has room for sandboxes on this
    /// machine. Makes nothing.
    pub fn check_reserve(reserve: u64) -> Result<(), SliceError> {
        let total = memory_within(soulbox_cgroup::memory_ceiling())?;
        left_of(total, reserve).map(|_left| ())
    }

    /// What all sandboxes may use together.
    pub fn memory_for_sandboxes(&self) -> u64 {
        match &self.slice {
            Some(slice) => slice.limits.memory_bytes,
            None => Memory::of_this_machine().map_or(0, |memory| memory.total - self.spare),
        }
    }

    fn open_files(&self) -> Option<u64> {
        // Linux tells the number as the size of the folder since 6.2.
        let told = fs::metadata("/proc/self/fd").ok()?.size();
        if told > 0 {
            return Some(told);
        }
        let mut counted = self.counted.lock();
        match *counted {
            Some((at, files)) if at.elapsed() < COUNT_EVERY => Some(files),
            _ => {
                let files = fs::read_dir("/proc/self/fd").ok()?.count() as u64;
                *counted = Some((Instant::now(), files));
                Some(files)
            }
        }
    }
}

impl Gauge for MachineGauge {
    fn read(&self) -> Reading {
        let mut levels = Vec::with_capacity(11);
        let mut level = |resource, whose, used: u64, bound: u64| {
            levels.push(Level {
                resource,
                whose,
                used,
                bound,
            });
        };
        if let Some(memory) = Memory::of_this_machine() {
            let used = memory.total.saturating_sub(memory.available);
            let bound = memory.total.saturating_sub(self.spare);
            level(Resource::Memory, "of the machine", used, bound);
        }
        if let Some(threads) = threads_now() {
            level(
                Resource::Threads,
                "of the machine",
                threads,
                self.thread_bound,
            );
        }
        if let (Some(files), Some(limit)) = (self.open_files(), getrlimit(Limited::Nofile).current)
        {
            let bound = limit - (limit / FILES_PART).min(MOST_FILES);
            level(Resource::Files, "of the server", files, bound);
        }
        for (resource, used, bound) in shared::levels() {
            level(resource, "of the machine", used, bound);
        }
        if let Some(slice) = &self.slice {
            let limits = &slice.limits;
            match slice.cgroups.slice_use(limits.memory_bytes / EXACT_PART) {
                Ok(used) => {
                    let whose = "for all sandboxes together";
                    level(
                        Resource::Memory,
                        whose,
                        used.memory_bytes,
                        limits.memory_bytes,
                    );
                    level(Resource::Threads, whose, used.pids, limits.pids);
                }
                Err(error) => tracing::debug!(%error, "what all sandboxes use cannot be read"),
            }
            if slice.contained {
                let whose = "of this container";
                if let Some(Ceiling { used, limit }) = slice.cgroups.memory_ceiling() {
                    let bound = limit.saturating_sub(self.spare);
                    level(Resource::Memory, whose, used, bound);
                }
                if let Some(Ceiling { used, limit }) = slice.cgroups.pids_ceiling() {
                    level(Resource::Threads, whose, used, less_reserve(limit));
                }
            }
        }
        Reading { levels }
    }

    fn kernel_memory(&self) -> Option<KernelMemory> {
        KernelMemory::of_this_machine()
    }
}

fn limit_of(ceiling: Option<Ceiling>) -> Option<u64> {
    ceiling.map(|ceiling| ceiling.limit)
}

/// Of the machine, or of the container that is ours.
fn memory_within(ceiling: Option<Ceiling>) -> Result<u64, SliceError> {
    let memory = Memory::of_this_machine().ok_or(SliceError::NoMemory)?;
    Ok(limit_of(ceiling).map_or(memory.total, |limit| limit.min(memory.total)))
}

fn left_of(total: u64, reserve: u64) -> Result<u64, SliceError> {
    match total.saturating_sub(reserve) {
        ..LEAST_SLICE => Err(SliceError::NothingLeft { reserve, total }),
        left => Ok(left),
    }
}

fn usual_reserve(total: u64, least: u64) -> u64 {
    (total / 100 * RESERVE_PERCENT)
        .max(least)
        .min(total / MOST_PART)
}

fn less_reserve(threads: u64) -> u64 {
    threads - usual_reserve(threads, LEAST_THREADS)
}

/// What the kernel has numbers and memory for.
fn thread_limit() -> u64 {
    let read = |name: &str| -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?;
        text.trim().parse().ok()
    };
    let limits = [read("pid_max"), read("threads-max")];
    limits.into_iter().flatten().min().unwrap_or(32_768)
}

fn threads_now() -> Option<u64> {
    threads_in(&fs::read_to_string("/proc/loadavg").ok()?)
}

/// `0.20 0.18 0.12 1/80 11206`: one of eighty runs.
fn threads_in(loadavg: &str) -> Option<u64> {
    let field = loadavg.split_ascii_whitespace().nth(3)?;
    field.split_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_a_part_of_a_large_machine_and_never_most_of_a_small_one() {
        let reserve = |gib: u64| usual_reserve(gib << 30, LEAST_RESERVE) >> 20;
        assert_eq!(reserve(1), 256);
        assert_eq!(reserve(4), 512);
        assert_eq!(reserve(64), 3276);
        assert_eq!(usual_reserve(0, LEAST_RESERVE), 0);
        assert_eq!(less_reserve(32_768), 31_133);
        assert_eq!(less_reserve(1000), 750);
    }

    #[test]
    fn a_reserve_must_leave_room_for_a_sandbox() {
        assert_eq!(left_of(2 << 30, 1 << 30).unwrap(), 1 << 30);
        let said = left_of(2 << 30, 4 << 30).unwrap_err().to_string();
        assert!(
            said.contains("4096 MiB") && said.contains("2048 MiB"),
            "{said}"
        );
        assert!(MachineGauge::check_reserve(0).is_ok());
        assert!(MachineGauge::check_reserve(u64::MAX).is_err());
    }

    #[test]
    fn the_kernels_words_are_read() {
        assert_eq!(threads_in("0.20 0.18 0.12 1/80 11206\n"), Some(80));
        assert_eq!(threads_in("0.20 0.18"), None);
    }

    #[test]
    fn this_machine_says_what_is_used_of_it() {
        let reading = MachineGauge::without_slice().read();
        for resource in [Resource::Memory, Resource::Threads, Resource::Files] {
            let level = reading.levels.iter().find(|l| l.resource == resource);
            let level = level.unwrap_or_else(|| panic!("{resource:?}"));
            assert!(level.used > 0 && level.bound > level.used, "{level:?}");
        }
    }
}
