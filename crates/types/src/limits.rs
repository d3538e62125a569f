//! What a sandbox may use. Limits are ceilings, not reservations.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Thousandths of a cpu.
    pub cpu_millis: u32,
    pub memory_mib: u32,
    /// Writable space: everything that the sandbox adds to its template.
    pub disk_mib: u32,
    /// Processes and threads.
    pub pids: u32,
}

impl Default for Limits {
    /// E2B's `base`: 2 vCPU and 512 MiB.
    fn default() -> Self {
        Self {
            cpu_millis: 2000,
            memory_mib: 512,
            disk_mib: 10 * 1024,
            pids: 1024,
        }
    }
}

/// What may be asked for, so that the command line refuses what the server would.
pub const MAX_CPUS: u32 = 32;
pub const MIN_MEMORY_MIB: u32 = 128;
pub const MAX_MEMORY_MIB: u32 = 256 * 1024;
pub const MIN_DISK_MIB: u32 = 64;
pub const MAX_DISK_MIB: u32 = 1024 * 1024;

/// What a paused sandbox may still have to write is in its memory: so much of the disk is kept free,
const RESERVE: u64 = 1 << 30;
/// of a small disk not more than this part,
const RESERVE_PART: u64 = 5;

/// and never less than `at_least`. Below it no sandbox is made.
pub fn disk_reserve(total: u64, at_least: u64) -> u64 {
    RESERVE.min(total / RESERVE_PART).max(at_least)
}

/// Sizes with names, beside explicit figures: those that people know from Cloudflare.
pub const INSTANCE_TYPES: [(&str, Limits); 6] = [
    ("lite", of_type(1000 / 16, 256, 2, 512)),
    ("basic", of_type(1000 / 4, 1024, 4, 1024)),
    ("standard-1", of_type(1000 / 2, 4 * 1024, 8, 2048)),
    ("standard-2", of_type(1000, 6 * 1024, 12, 2048)),
    ("standard-3", of_type(2000, 8 * 1024, 16, 4096)),
    ("standard-4", of_type(4000, 12 * 1024, 20, 4096)),
];

const fn of_type(cpu_millis: u32, memory_mib: u32, disk_gib: u32, pids: u32) -> Limits {
    Limits {
        cpu_millis,
        memory_mib,
        disk_mib: disk_gib * 1024,
        pids,
    }
}

impl Limits {
    /// `None`: there is no such type in [`INSTANCE_TYPES`].
    pub fn of_instance_type(name: &str) -> Option<Self> {
        INSTANCE_TYPES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, limits)| *limits)
    }

    pub fn memory_bytes(&self) -> u64 {
        u64::from(self.memory_mib) << 20
    }

    pub fn disk_bytes(&self) -> u64 {
        u64::from(self.disk_mib) << 20
    }

    /// Whole cpus, rounded up: what E2B reports as `cpuCount`.
    pub fn cpu_count(&self) -> u32 {
        self.cpu_millis.div_ceil(1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_type_is_found_by_its_name() {
        let lite = Limits::of_instance_type("lite").unwrap();
        assert_eq!(
            (lite.cpu_millis, lite.memory_mib, lite.disk_mib),
            (62, 256, 2048)
        );
        assert_eq!(lite.cpu_count(), 1);
        let largest = Limits::of_instance_type("standard-4").unwrap();
        assert_eq!(
            (largest.cpu_millis, largest.memory_mib, largest.disk_mib),
            (4000, 12 * 1024, 20 * 1024)
        );
    }

    #[test]
    fn of_a_small_disk_a_part_is_kept_free_and_of_a_large_one_a_gibibyte() {
        assert_eq!(disk_reserve(500 << 30, 0), 1 << 30);
        assert_eq!(disk_reserve(1 << 30, 0), (1 << 30) / 5);
        assert_eq!(disk_reserve(1 << 30, 1 << 30), 1 << 30);
        assert_eq!(disk_reserve(500 << 30, 2 << 30), 2 << 30);
    }

    #[test]
    fn unknown_types_and_other_spellings_are_none() {
        for name in ["", "Lite", "standard", "standard-5", "lite "] {
            assert_eq!(Limits::of_instance_type(name), None, "{name}");
        }
    }

    #[test]
    fn a_later_type_is_never_smaller_in_anything() {
        for pair in INSTANCE_TYPES.windows(2) {
            let ((_, a), (_, b)) = (pair[0], pair[1]);
            assert!(a.cpu_millis < b.cpu_millis && a.memory_mib < b.memory_mib);
            assert!(a.disk_mib < b.disk_mib && a.pids <= b.pids);
        }
    }
}
