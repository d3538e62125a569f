//! What a group uses now.

use crate::{
    Cgroup, Controller, Result, Version,
    file::{read_key, read_number, read_number_if_present},
};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CgroupStats {
    /// Cpu time since the group was made, in microseconds.
    pub cpu_micros: u64,
    /// Everything charged to the group, the page cache included.
    pub memory_bytes: u64,
    /// The page cache of it: given up when memory gets short.
    pub memory_cache_bytes: u64,
    /// The most that `memory_bytes` ever was; on v2 since Linux 5.19.
    pub memory_peak_bytes: Option<u64>,
    pub pids: u64,
    /// How often the kernel killed something in the group for lack of memory.
    pub oom_kills: u64,
}

impl Cgroup {
    /// What was written to files and is not on their disks yet. 0 where the kernel does not report it.
    pub fn unwritten_bytes(&self) -> Result<u64> {
        let Some(hierarchy) = self.hierarchy_of(Controller::Memory) else {
            return Ok(0);
        };
        let file = self.directory(hierarchy).join("memory.stat");
        let (dirty, under_way) = match hierarchy.version {
            Version::V1 => ("total_dirty", "total_writeback"),
            Version::V2 => ("file_dirty", "file_writeback"),
        };
        Ok(read_key(&file, dirty)? + read_key(&file, under_way)?)
    }

    pub fn stats(&self) -> Result<CgroupStats> {
        let mut stats = CgroupStats::default();
        if let Some(hierarchy) = self.hierarchy_of(Controller::Cpuacct) {
            let dir = self.directory(hierarchy);
            stats.cpu_micros = match hierarchy.version {
                Version::V1 => read_number(&dir.join("cpuacct.usage"))? / 1000,
                Version::V2 => read_key(&dir.join("cpu.stat"), "usage_usec")?,
            };
        }
        if let Some(hierarchy) = self.hierarchy_of(Controller::Memory) {
            let dir = self.directory(hierarchy);
            let (usage, peak, cache, events) = match hierarchy.version {
                Version::V1 => (
                    "memory.usage_in_bytes",
                    "memory.max_usage_in_bytes",
                    "total_cache",
                    "memory.oom_control",
                ),
                Version::V2 => ("memory.current", "memory.peak", "file", "memory.events"),
            };
            stats.memory_bytes = read_number(&dir.join(usage))?;
            stats.memory_peak_bytes = read_number_if_present(&dir.join(peak))?;
            stats.memory_cache_bytes = read_key(&dir.join("memory.stat"), cache)?;
            stats.oom_kills = read_key(&dir.join(events), "oom_kill")?;
        }
        if let Some(dir) = self.directory_of(Controller::Pids) {
            stats.pids = read_number(&dir.join("pids.current"))?;
        }
        Ok(stats)
    }
}
