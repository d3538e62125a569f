//! New limits for a group with processes in it.

use crate::{
    Cgroup, CgroupLimits, Controller, Error, Result, Version,
    discover::Hierarchy,
    file::{read_number, write_if_present},
};

impl Cgroup {
    /// Replaces the group's limits. Memory is never cut below what is in use: the kernel is asked
    /// to make room and, when it cannot, the call fails with [`Error::MemoryInUse`] and everything
    /// stays as it was. May take as long as that reclaim takes.
    pub fn set_limits(&self, limits: &CgroupLimits) -> Result<()> {
        // First what may fail for good reasons.
        let (memory, rest): (Vec<_>, Vec<_>) = self
            .hierarchies()
            .filter(|h| h.is_used())
            .partition(|h| h.has(Controller::Memory));
        for hierarchy in &memory {
            self.make_room(hierarchy, limits.memory_bytes)?;
        }
        for hierarchy in memory.into_iter().chain(rest) {
            limits
                .apply(hierarchy, &self.directory(hierarchy))
                .map_err(|error| match error.errno() {
                    // v1 says so itself.
                    Some(libc::EBUSY) if hierarchy.has(Controller::Memory) => {
                        self.memory_in_use(hierarchy, limits.memory_bytes)
                    }
                    _ => error,
                })?;
        }
        Ok(())
    }

    /// On v2 a limit below the use is enforced by killing.
    fn make_room(&self, hierarchy: &Hierarchy, limit: u64) -> Result<()> {
        if hierarchy.version == Version::V1 {
            return Ok(());
        }
        let directory = self.directory(hierarchy);
        let excess = self.memory_use(hierarchy)?.saturating_sub(limit);
        if excess == 0 {
            return Ok(());
        }
        match write_if_present(&directory.join("memory.reclaim"), &excess.to_string()) {
            // Not all of it: what counts is what is left.
            Err(error) if error.errno() == Some(libc::EAGAIN) => {}
            other => drop(other?),
        }
        if self.memory_use(hierarchy)? > limit {
            return Err(self.memory_in_use(hierarchy, limit));
        }
        Ok(())
    }

    fn memory_use(&self, hierarchy: &Hierarchy) -> Result<u64> {
        let name = match hierarchy.version {
            Version::V1 => "memory.usage_in_bytes",
            Version::V2 => "memory.current",
        };
        read_number(&self.directory(hierarchy).join(name))
    }

    fn memory_in_use(&self, hierarchy: &Hierarchy, limit: u64) -> Error {
        Error::MemoryInUse {
            name: self.name().to_owned(),
            used: self.memory_use(hierarchy).unwrap_or_default(),
            limit,
        }
    }
}
