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

impl Limits {
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
