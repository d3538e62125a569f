//! Writes limits to the files of v1 and v2.

use std::path::Path;

use crate::{
    Controller, Result, Version,
    discover::Hierarchy,
    file::{write, write_if_present},
};

/// On v1, the part of the memory limit that socket buffers may take on top of it.
const SOCKET_SHARE: u64 = 4;

/// What a group may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CgroupLimits {
    /// Thousandths of a cpu.
    pub cpu_millis: u32,
    /// Share of the cpu where others want it too: 1 to 10,000, [`Self::USUAL_CPU_WEIGHT`] as the
    /// default.
    pub cpu_weight: u16,
    pub memory_bytes: u64,
    /// Swap on top of the memory.
    pub swap_bytes: u64,
    /// Processes and threads.
    pub pids: u32,
}

const PERIOD_MICROS: u64 = 100_000;
/// The kernel refuses less.
const LEAST_QUOTA_MICROS: u64 = 1_000;
/// What v1 has for the usual weight.
const USUAL_SHARES: u64 = 1024;
const LEAST_SHARES: u64 = 2;

impl CgroupLimits {
    /// What every group has that was not given another weight.
    pub const USUAL_CPU_WEIGHT: u16 = 100;

    fn quota_micros(&self) -> u64 {
        (u64::from(self.cpu_millis) * PERIOD_MICROS / 1000).max(LEAST_QUOTA_MICROS)
    }

    pub(crate) fn apply(&self, hierarchy: &Hierarchy, dir: &Path) -> Result<()> {
        for controller in &hierarchy.controllers {
            match (hierarchy.version, controller) {
                (version, Controller::Cpu) => {
                    self.quota(version, dir)?;
                    write_cpu_weight(version, dir, self.cpu_weight)?;
                }
                (Version::V1, Controller::Memory) => self.memory_v1(dir)?,
                (Version::V2, Controller::Memory) => self.memory_v2(dir)?,
                (_, Controller::Pids) => write(&dir.join("pids.max"), &self.pids.to_string())?,
                (_, Controller::Io | Controller::Freezer | Controller::Cpuacct) => {}
            }
        }
        Ok(())
    }

    fn quota(&self, version: Version, dir: &Path) -> Result<()> {
        let quota = self.quota_micros();
        match version {
            Version::V1 => {
                write(&dir.join("cpu.cfs_period_us"), &PERIOD_MICROS.to_string())?;
                write(&dir.join("cpu.cfs_quota_us"), &quota.to_string())
            }
            Version::V2 => write(&dir.join("cpu.max"), &format!("{quota} {PERIOD_MICROS}")),
        }
    }

    fn memory_v1(&self, dir: &Path) -> Result<()> {
        let limit = dir.join("memory.limit_in_bytes");
        let memory = self.memory_bytes.to_string();
        // Memory plus swap; absent without swap accounting. The kernel insists that it is never
        // below the memory limit, so a rise has to start with it and a cut has to end with it.
        let both = dir.join("memory.memsw.limit_in_bytes");
        let total = self
            .memory_bytes
            .saturating_add(self.swap_bytes)
            .to_string();
        match write(&limit, &memory) {
            Ok(()) => drop(write_if_present(&both, &total)?),
            Err(error) if error.errno() == Some(libc::EINVAL) => {
                write_if_present(&both, &total)?;
                write(&limit, &memory)?;
            }
            Err(error) => return Err(error),
        }
        if self.swap_bytes == 0 {
            write_if_present(&dir.join("memory.swappiness"), "0")?;
        }
        // Socket buffers are counted apart, and only once they have a limit; without one, a
        // sandbox could hold all the memory that the kernel has for TCP.
        let sockets = (self.memory_bytes / SOCKET_SHARE).to_string();
        write_if_present(&dir.join("memory.kmem.tcp.limit_in_bytes"), &sockets)?;
        Ok(())
    }

    fn memory_v2(&self, dir: &Path) -> Result<()> {
        write(&dir.join("memory.max"), &self.memory_bytes.to_string())?;
        // Absent when the kernel was built without swap.
        write_if_present(&dir.join("memory.swap.max"), &self.swap_bytes.to_string())?;
        // One process dies of the bomb that it holds, not all of them.
        write_if_present(&dir.join("memory.oom.group"), "0")?;
        Ok(())
    }
}

/// On v2 as it is; v1 counts in shares.
pub(crate) fn write_cpu_weight(version: Version, dir: &Path, weight: u16) -> Result<()> {
    let weight = u64::from(weight.clamp(1, 10_000));
    match version {
        Version::V1 => {
            let usual = u64::from(CgroupLimits::USUAL_CPU_WEIGHT);
            let shares = (weight * USUAL_SHARES / usual).max(LEAST_SHARES);
            write(&dir.join("cpu.shares"), &shares.to_string())
        }
        Version::V2 => write(&dir.join("cpu.weight"), &weight.to_string()),
    }
}
