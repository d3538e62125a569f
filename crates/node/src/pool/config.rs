use std::{path::PathBuf, time::Duration};

use soulbox_runtime::Refill;

use super::pressure::{MEMINFO, Memory};

/// How long a stop waits for waiting sandboxes to end.
pub(super) const CLOSE_LIMIT: Duration = Duration::from_secs(10);
/// After a create has asked for one, its making or, if it got one, its user's first commands go
/// before the making of the next one: on a small machine the two would share the same cores.
pub(super) const CALM: Duration = Duration::from_millis(30);
/// Creates that follow each other closely do not put the next one off for longer.
pub(super) const LONGEST_CALM: Duration = Duration::from_millis(250);
pub(super) const MEMORY_IS_FRESH: Duration = Duration::from_millis(100);
/// Of the machine's memory, what waiting sandboxes may use unless told otherwise.
const MEMORY_PART: u64 = 4;

/// How large the pool of waiting sandboxes may get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolConfig {
    /// 0: no pool.
    pub max_total: usize,
    pub max_per_template: usize,
    /// What all of them may use together, as measured.
    pub memory_bytes: u64,
    /// How long after the last demand the last one of a kind goes.
    pub idle_for: Duration,
    /// How long a reserved one waits for its `create`.
    pub reserved_for: Duration,
    /// How many are made at the same time.
    pub at_once: usize,
    /// Where the kernel tells about memory.
    pub meminfo: PathBuf,
}

impl PoolConfig {
    /// One template may have them all, for as long as no other is in demand. 0: no pool.
    pub fn up_to(max_total: usize) -> Self {
        Self {
            max_total,
            max_per_template: max_total,
            ..Self::default()
        }
    }

    pub fn off() -> Self {
        Self::up_to(0)
    }

    pub(super) fn is_off(&self) -> bool {
        self.max_total == 0 || self.max_per_template == 0
    }
}

impl Default for PoolConfig {
    fn default() -> Self {
        let meminfo = PathBuf::from(MEMINFO);
        let total = Memory::read(&meminfo).map_or(0, |memory| memory.total);
        Self {
            max_total: 8,
            max_per_template: 8,
            memory_bytes: total / MEMORY_PART,
            idle_for: Duration::from_mins(5),
            reserved_for: Duration::from_secs(10),
            at_once: Refill::of_this_machine().at_once,
            meminfo,
        }
    }
}
