//! What a node shows of its sandboxes.

mod cache;
mod table;
mod tokens;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use soulbox_types::{OnTimeout, PauseMode, SandboxSpec, SandboxState, UnixMillis};

pub use cache::{MissingChange, StatusCache, StatusChange, StatusSnapshot};

/// A sandbox as its node knows it: the truth about what runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SandboxStatus {
    /// With the deadline as it is now. Shared, so that a list of a thousand copies none.
    pub spec: Arc<SandboxSpec>,
    pub state: SandboxState,
    /// How it is paused. Absent also while it is being paused.
    #[serde(default)]
    pub paused: Option<Paused>,
}

/// A paused sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {
    /// What a resume brings back. After a reboot of the machine memory is gone, and this says so.
    pub kept: PauseMode,
    pub at: UnixMillis,
}

impl SandboxStatus {
    pub fn new(spec: impl Into<Arc<SandboxSpec>>, state: SandboxState) -> Self {
        Self {
            spec: spec.into(),
            state,
            paused: None,
        }
    }

    /// Changes of a spec make a new one, so that those who hold the old one see no change.
    fn is_same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.spec, &other.spec)
            && (self.state, self.paused) == (other.state, other.paused)
    }
}

/// A sandbox while a node's list is looked through: see [`StatusCache::visit`].
#[derive(Debug, Clone, Copy)]
pub struct Visited<'a> {
    pub spec: &'a Arc<SandboxSpec>,
    pub state: SandboxState,
    /// How it is paused. Absent also while it is being paused.
    pub paused: Option<Paused>,
    /// These three are those of the spec: whoever looks through thousands need not look there.
    pub created_at: UnixMillis,
    pub deadline: UnixMillis,
    pub on_timeout: OnTimeout,
}

impl<'a> Visited<'a> {
    pub fn of(status: &'a SandboxStatus) -> Self {
        let spec = &status.spec;
        Self {
            spec,
            state: status.state,
            paused: status.paused,
            created_at: spec.created_at,
            deadline: spec.deadline,
            on_timeout: spec.lifecycle.on_timeout,
        }
    }

    pub fn status(self) -> SandboxStatus {
        SandboxStatus {
            spec: Arc::clone(self.spec),
            state: self.state,
            paused: self.paused,
        }
    }
}
