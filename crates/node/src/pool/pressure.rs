//! Whether the machine can afford sandboxes that nobody uses yet.

use std::path::Path;

/// Of the memory, the part that must be available; below half of it everything goes.
const SPARE_PART: u64 = 10;
const LEAST_SPARE: u64 = 256 << 20;

pub(super) const MEMINFO: &str = "/proc/meminfo";

/// In bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) total: u64,
    pub(crate) available: u64,
}

/// From good to bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pressure {
    None,
    /// None more.
    Some,
    /// Fewer.
    High,
}

impl Memory {
    pub(crate) fn of_this_machine() -> Option<Self> {
        Self::read(Path::new(MEMINFO))
    }

    /// `None` when the kernel does not tell.
    pub(super) fn read(meminfo: &Path) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(meminfo).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
            Some(kib << 10)
        };
        Some(Self {
            total: field("MemTotal:")?,
            available: field("MemAvailable:")?,
        })
    }

    pub(super) fn pressure(self) -> Pressure {
        let spare = (self.total / SPARE_PART).max(LEAST_SPARE.min(self.total / 2));
        if self.available < spare / 2 {
            Pressure::High
        } else if self.available < spare {
            Pressure::Some
        } else {
            Pressure::None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_memory_stops_the_pool_and_less_empties_it() {
        let at = |available| Memory {
            total: 10 << 30,
            available,
        };
        assert_eq!(at(8 << 30).pressure(), Pressure::None);
        assert_eq!(at(900 << 20).pressure(), Pressure::Some);
        assert_eq!(at(100 << 20).pressure(), Pressure::High);
    }

    #[test]
    fn the_kernels_words_are_read() {
        let text = "MemTotal:       24681472 kB\nMemFree:  1 kB\nMemAvailable:   2048 kB\n";
        let memory = Memory::parse(text).unwrap();
        assert_eq!(
            (memory.total, memory.available),
            (24_681_472 << 10, 2 << 20)
        );
        assert!(Memory::parse("MemTotal: many\n").is_none());
    }
}
