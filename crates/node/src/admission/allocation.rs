//! Room for sandboxes, and limits that were promised.

use soulbox_types::{PauseMode, SandboxId, SandboxSpec, SandboxState};

use super::{Ask, resource::Shortage};
use crate::{LocalNode, entries::Entries};

/// What a sandbox has from its admission on. Kept with its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allocation {
    /// A place and its memory.
    place: bool,
    cpu: bool,
}

impl Allocation {
    pub(crate) const ALL: Self = Self {
        place: true,
        cpu: true,
    };
    pub(crate) const NOTHING: Self = Self {
        place: false,
        cpu: false,
    };

    pub(crate) fn in_state(state: SandboxState) -> Self {
        match state {
            SandboxState::Creating => Self::NOTHING,
            _ => Self::ALL,
        }
    }

    /// Memory that is kept is used, and so are its network and its processes.
    pub(crate) fn while_paused(kept: PauseMode) -> Self {
        Self {
            place: kept == PauseMode::Memory,
            cpu: false,
        }
    }
}

impl LocalNode {
    /// Checks and takes in one step. A sandbox that is not here (any more) takes nothing.
    pub(super) fn allocate(&self, spec: &SandboxSpec, ask: Ask) -> Result<(), Shortage> {
        let mut entries = self.entries().lock();
        let Some(held) = entries.get(&spec.id).map(|entry| entry.allocation) else {
            return Ok(());
        };
        if !held.place {
            // The last place is not for those that nobody uses yet.
            let kept_free = usize::from(ask == Ask::Warm);
            let most = self.max_sandboxes();
            // All that are here, itself among them, is an upper bound that costs nothing.
            if entries.len() + kept_free > most {
                let used = count(&entries);
                if used + kept_free >= most {
                    return Err(Shortage::sandboxes(used, most));
                }
            }
        }
        if !held.place {
            self.check_memory_promise(&entries, spec)?;
        }
        if !held.cpu {
            self.check_cpu_promise(&entries, spec)?;
        }
        if let Some(mut entry) = entries.get_mut(&spec.id) {
            entry.allocation = Allocation::ALL;
        }
        Ok(())
    }

    /// Whether its limit may be promised to a sandbox, whatever it was promised before.
    fn check_memory_promise(&self, entries: &Entries, spec: &SandboxSpec) -> Result<(), Shortage> {
        let Some(most) = self.admission().config.overcommit.memory_bytes else {
            return Ok(());
        };
        let others = entries.values().filter(|entry| *entry.id() != spec.id);
        let promised = others
            .filter(|entry| entry.allocation.place)
            .map(|entry| entry.spec.limits.memory_bytes())
            .sum();
        if spec.limits.memory_bytes().saturating_add(promised) > most {
            return Err(Shortage::promised_memory(&spec.limits, promised, most));
        }
        Ok(())
    }

    fn check_cpu_promise(&self, entries: &Entries, spec: &SandboxSpec) -> Result<(), Shortage> {
        let Some(most) = self.admission().config.overcommit.cpu_millis else {
            return Ok(());
        };
        let others = entries.values().filter(|entry| *entry.id() != spec.id);
        let promised = others
            .filter(|entry| entry.allocation.cpu)
            .map(|entry| u64::from(entry.spec.limits.cpu_millis))
            .sum();
        if u64::from(spec.limits.cpu_millis).saturating_add(promised) > most {
            return Err(Shortage::promised_cpu(&spec.limits, promised, most));
        }
        Ok(())
    }

    /// Whether one that is here may have these limits instead of its own.
    pub(crate) fn check_promises(
        &self,
        entries: &Entries,
        spec: &SandboxSpec,
    ) -> soulbox_runtime::Result<()> {
        self.check_memory_promise(entries, spec)?;
        Ok(self.check_cpu_promise(entries, spec)?)
    }

    /// How many more sandboxes of any purpose may be made.
    pub(crate) fn free_sandboxes(&self) -> usize {
        let used = count(&self.entries().lock());
        self.max_sandboxes().saturating_sub(used)
    }

    /// What it does not hold any more may be what others wait for.
    pub(crate) fn reallocate(&self, id: &SandboxId, allocation: Allocation) {
        if let Some(mut entry) = self.entries().lock().get_mut(id) {
            entry.allocation = allocation;
        }
        self.admission().something_changed();
    }
}

fn count(entries: &Entries) -> usize {
    entries
        .values()
        .filter(|entry| entry.allocation.place)
        .count()
}
