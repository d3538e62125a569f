//! What a sandbox will need by the time that it is ready.

use std::collections::HashMap;

use parking_lot::Mutex;
use soulbox_types::SandboxSpec;

use super::ledger::Need;

/// An idle one uses a few MiB, kernel included; its first command comes soon.
const LEAST_MEMORY: u64 = 24 << 20;
const THREADS: u64 = 16;
/// Its first process, its network, and streams into it.
const FILES: u64 = 8;
const REMEMBERED: usize = 1024;

/// By template: one whose start command loads a language runtime needs that.
#[derive(Debug, Default)]
pub(crate) struct Estimates {
    memory: Mutex<HashMap<String, u64>>,
}

impl Estimates {
    pub(super) fn need_of(&self, spec: &SandboxSpec) -> Need {
        let learned = self.memory.lock().get(made_of(spec)).copied();
        let memory = learned.unwrap_or_default().max(LEAST_MEMORY);
        Need {
            memory: memory.min(spec.limits.memory_bytes()),
            threads: THREADS,
            files: FILES,
        }
    }

    /// One was found to use so much when it was ready.
    pub(crate) fn learn(&self, spec: &SandboxSpec, bytes: u64) {
        let mut memory = self.memory.lock();
        if let Some(known) = memory.get_mut(made_of(spec)) {
            *known = (*known / 4 * 3).saturating_add(bytes / 4);
            return;
        }
        if memory.len() >= REMEMBERED {
            memory.clear();
        }
        memory.insert(made_of(spec).to_owned(), bytes);
    }
}

fn made_of(spec: &SandboxSpec) -> &str {
    spec.build
        .as_deref()
        .unwrap_or_else(|| spec.template.as_str())
}
