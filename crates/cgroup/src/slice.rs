//! The parent group as a slice with limits: what all sandboxes may use together.
//!
//! A sandbox keeps to its own limit, but the sum of the limits may be many times the machine. The
//! parent's limits hold regardless: the kernel kills processes inside the slice, and what is outside
//! (the server, its database, the system) keeps its memory and can start processes.

use std::path::{Path, PathBuf};

use crate::{
    Controller, Error, Manager, Result, Version,
    discover::{Hierarchy, discover},
    file::{key_in, read, read_number, write, write_if_present},
    limits::write_cpu_weight,
};

/// What all groups of a [`Manager`] may use together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SliceLimits {
    pub memory_bytes: u64,
    /// Processes and threads.
    pub pids: u64,
    /// Against what runs beside it, which has 100.
    pub cpu_weight: u16,
}

/// What all groups use together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SliceUse {
    pub memory_bytes: u64,
    pub pids: u64,
}

/// A limit on everything that this process can see of the hierarchy, as a container has one, and
/// what is used of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ceiling {
    pub used: u64,
    pub limit: u64,
}

impl Manager {
    /// Sets or changes the limits. What the kernel refuses stays as it was and is returned: a server
    /// without these limits is better than none.
    pub fn set_slice(&self, limits: &SliceLimits) -> Vec<Error> {
        if let Ok(mut slice) = self.shared().slice_limits.lock() {
            *slice = Some(*limits);
        }
        self.apply_slice_limits(limits)
    }

    /// After the parent's files were made anew.
    pub(crate) fn restore_slice_limits(&self) {
        let limits = self
            .shared()
            .slice_limits
            .lock()
            .ok()
            .and_then(|slice| *slice);
        for error in limits.map_or_else(Vec::new, |limits| self.apply_slice_limits(&limits)) {
            tracing::warn!(%error, "a limit of the slice of all sandboxes could not be set again");
        }
    }

    fn apply_slice_limits(&self, limits: &SliceLimits) -> Vec<Error> {
        let set = |controller: Controller| match (self.parent_with(controller), controller) {
            (Some((version, dir)), Controller::Memory) => {
                set_memory(version, &dir, limits.memory_bytes)
            }
            (Some((_, dir)), Controller::Pids) => {
                write(&dir.join("pids.max"), &limits.pids.to_string())
            }
            (Some((version, dir)), Controller::Cpu) => {
                write_cpu_weight(version, &dir, limits.cpu_weight)
            }
            _ => Ok(()),
        };
        [Controller::Memory, Controller::Pids, Controller::Cpu]
            .into_iter()
            .filter_map(|controller| set(controller).err())
            .collect()
    }

    /// Page cache, which the kernel takes back when it needs memory, is counted as used only
    /// while all is below `exact_from`: separating it asks every group.
    pub fn slice_use(&self, exact_from: u64) -> Result<SliceUse> {
        let mut found = SliceUse::default();
        if let Some((version, dir)) = self.parent_with(Controller::Memory) {
            found.memory_bytes = memory_use(version, &dir, exact_from)?;
        }
        if let Some((_, dir)) = self.parent_with(Controller::Pids) {
            found.pids = read_number(&dir.join("pids.current"))?;
        }
        Ok(found)
    }

    /// `None` on a machine of our own: its root has no limit.
    pub fn memory_ceiling(&self) -> Option<Ceiling> {
        memory_ceiling_of(self.hierarchies())
    }

    pub fn pids_ceiling(&self) -> Option<Ceiling> {
        let mount = &self.hierarchy_with(Controller::Pids)?.mount;
        Some(Ceiling {
            // The word `max` is no number, and a real root has no such file.
            limit: read_number(&mount.join("pids.max")).ok()?,
            used: read_number(&mount.join("pids.current")).ok()?,
        })
    }

    fn hierarchy_with(&self, controller: Controller) -> Option<&Hierarchy> {
        self.hierarchies().iter().find(|h| h.has(controller))
    }

    fn parent_with(&self, controller: Controller) -> Option<(Version, PathBuf)> {
        let hierarchy = self.hierarchy_with(controller)?;
        Some((hierarchy.version, self.shared().parent_of(hierarchy)))
    }
}

/// As [`Manager::memory_ceiling`], without making any group.
pub fn memory_ceiling() -> Option<Ceiling> {
    memory_ceiling_of(&discover().ok()?)
}

fn memory_ceiling_of(hierarchies: &[Hierarchy]) -> Option<Ceiling> {
    let hierarchy = hierarchies.iter().find(|h| h.has(Controller::Memory))?;
    let limit = match hierarchy.version {
        Version::V1 => read_number(&hierarchy.mount.join("memory.limit_in_bytes")).ok()?,
        Version::V2 => read_number(&hierarchy.mount.join("memory.max")).ok()?,
    };
    // v1 says "none" with a number larger than any machine.
    if limit >= 1 << 60 {
        return None;
    }
    let used = memory_use(hierarchy.version, &hierarchy.mount, 0).ok()?;
    Some(Ceiling { used, limit })
}

fn set_memory(version: Version, dir: &Path, limit: u64) -> Result<()> {
    let in_use = || Error::MemoryInUse {
        name: dir.file_name().unwrap_or_default().display().to_string(),
        used: memory_use(version, dir, 0).unwrap_or_default(),
        limit,
    };
    let text = limit.to_string();
    match version {
        Version::V1 => {
            let memory = dir.join("memory.limit_in_bytes");
            // Memory plus swap, never below memory alone: raised first, cut last.
            let both = dir.join("memory.memsw.limit_in_bytes");
            let set = match write(&memory, &text) {
                Err(error) if error.errno() == Some(libc::EINVAL) => {
                    write_if_present(&both, &text).and_then(|_| write(&memory, &text))
                }
                other => other.and_then(|()| write_if_present(&both, &text).map(drop)),
            };
            set.map_err(|error| match error.errno() {
                Some(libc::EBUSY) => in_use(),
                _ => error,
            })
        }
        Version::V2 => {
            // Here a limit below the use would be enforced at once, by killing.
            if memory_use(version, dir, 0)? > limit {
                return Err(in_use());
            }
            write(&dir.join("memory.max"), &text)
        }
    }
}

fn memory_use(version: Version, dir: &Path, exact_from: u64) -> Result<u64> {
    let (usage, files) = match version {
        Version::V1 => (
            "memory.usage_in_bytes",
            ["total_inactive_file", "total_active_file"],
        ),
        Version::V2 => ("memory.current", ["inactive_file", "active_file"]),
    };
    let used = read_number(&dir.join(usage))?;
    if used < exact_from {
        return Ok(used);
    }
    let stat = read(&dir.join("memory.stat"))?;
    let cache: u64 = files.iter().map(|key| key_in(&stat, key)).sum();
    Ok(used.saturating_sub(cache))
}
