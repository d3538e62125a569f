//! The sandboxes that a node shows, in memory, and every change of them in order.
//!
//! The node itself writes here where it changes a sandbox, before the call that changed it returns:
//! whoever asked for a change reads it. A copy elsewhere begins with a snapshot and applies the
//! changes that follow; their numbers tell when one is missing.

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use soulbox_types::{SandboxId, TenantId};
use tokio::sync::broadcast;

use super::{SandboxStatus, Visited, table::Table};

/// That a copy may be behind. One that is further behind begins anew.
const CHANGES: usize = 4096;

/// One sandbox has changed, or is not there any more.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StatusChange {
    /// One more than that of the change before.
    pub sequence: u64,
    pub id: SandboxId,
    /// `None`: it is gone.
    pub status: Option<SandboxStatus>,
}

/// All of them at one moment.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StatusSnapshot {
    /// Of the last change that is in it.
    pub sequence: u64,
    pub statuses: Vec<SandboxStatus>,
}

/// A copy that goes on would show what is not so: it must begin with a new snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("change {expected} of a node's sandboxes is missing: {got} came")]
pub struct MissingChange {
    pub expected: u64,
    pub got: u64,
}

#[derive(Debug)]
pub struct StatusCache {
    /// Held for short.
    state: Mutex<State>,
    changes: broadcast::Sender<StatusChange>,
}

#[derive(Debug, Default)]
struct State {
    table: Table,
    sequence: u64,
}

impl Default for StatusCache {
    fn default() -> Self {
        Self::copy_of(StatusSnapshot::default())
    }
}

impl StatusCache {
    pub fn copy_of(snapshot: StatusSnapshot) -> Self {
        let mut table = Table::default();
        for status in snapshot.statuses {
            table.set(status);
        }
        let sequence = snapshot.sequence;
        Self {
            state: Mutex::new(State { table, sequence }),
            changes: broadcast::Sender::new(CHANGES),
        }
    }

    /// Adds a sandbox or replaces what was known of it. Nothing happens when that is the same.
    pub fn set(&self, status: SandboxStatus) {
        let mut state = self.state.lock();
        let known = state.table.get(&status.spec.id);
        if known.is_some_and(|known| known.is_same_as(&status)) {
            return;
        }
        let id = status.spec.id.clone();
        self.change(&mut state, id, Some(status));
    }

    /// It is not shown any more.
    pub fn remove(&self, id: &SandboxId) {
        let mut state = self.state.lock();
        if state.table.get(id).is_some() {
            self.change(&mut state, id.clone(), None);
        }
    }

    fn change(&self, state: &mut State, id: SandboxId, status: Option<SandboxStatus>) {
        let sequence = state.sequence + 1;
        self.write(
            state,
            StatusChange {
                sequence,
                id,
                status,
            },
        );
    }

    /// In a copy: the next change. One that its snapshot had already is passed over.
    pub fn apply(&self, change: StatusChange) -> Result<(), MissingChange> {
        let mut state = self.state.lock();
        let (expected, got) = (state.sequence + 1, change.sequence);
        if got > expected {
            return Err(MissingChange { expected, got });
        }
        if got == expected {
            self.write(&mut state, change);
        }
        Ok(())
    }

    fn write(&self, state: &mut State, change: StatusChange) {
        state.sequence = change.sequence;
        // Under the lock, so that they are sent in their order.
        if self.changes.receiver_count() > 0 {
            let _nobody = self.changes.send(change.clone());
        }
        match change.status {
            Some(status) => state.table.set(status),
            None => drop(state.table.remove(&change.id)),
        }
    }

    /// For a copy: all of them, and every change from then on.
    pub fn subscribe(&self) -> (StatusSnapshot, broadcast::Receiver<StatusChange>) {
        let state = self.state.lock();
        let mut statuses = Vec::new();
        state
            .table
            .visit(None, &mut |visited| statuses.push(visited.status()));
        let sequence = state.sequence;
        let snapshot = StatusSnapshot { sequence, statuses };
        (snapshot, self.changes.subscribe())
    }

    pub fn get(&self, id: &SandboxId) -> Option<SandboxStatus> {
        self.state.lock().table.get(id).cloned()
    }

    /// The sandbox that this access token belongs to. One hash, however many there are: whoever asks
    /// has not shown yet that the token is one.
    pub fn of_access_token(&self, shown: &str) -> Option<SandboxStatus> {
        self.state.lock().table.of_token(shown).cloned()
    }

    /// Shows all of them, or all of a tenant, in no particular order, and copies none. `each` is
    /// called while nobody else can change anything, so it must be quick and ask nothing here.
    pub fn visit(&self, tenant: Option<&TenantId>, each: &mut dyn FnMut(Visited<'_>)) {
        self.state.lock().table.visit(tenant, each);
    }
}

#[cfg(test)]
mod tests;
