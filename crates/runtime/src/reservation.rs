//! What a node keeps for a create that comes in a moment: see `docs/decisions/0002-reservations.md`.

use std::{fmt, sync::Weak, time::Duration};

use serde::{Deserialize, Serialize};
use soulbox_types::{Purpose, SandboxId, SandboxSpec, TemplateId, Tier, UnixMillis};

/// What a warm sandbox must be to serve a create: the rest can be changed when it is handed over.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PoolKey {
    #[serde(default)]
    pub tier: Tier,
    pub template: TemplateId,
    pub build: Option<String>,
    pub disk_mib: u32,
}

impl PoolKey {
    /// `None`: no warm sandbox can become this one, since disk, volumes and what it stands on cannot
    /// be changed in a running sandbox.
    pub fn of(spec: &SandboxSpec) -> Option<Self> {
        let can_be_warm =
            spec.purpose == Purpose::User && spec.snapshot.is_none() && spec.volumes.is_empty();
        can_be_warm.then(|| Self {
            tier: spec.tier,
            template: spec.template.clone(),
            build: spec.build.clone(),
            disk_mib: spec.limits.disk_mib,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReserveRequest {
    pub tier: Tier,
    /// Of the warm sandboxes that would do. `None`: none would.
    pub pool_key: Option<PoolKey>,
}

/// What a reservation keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReservationSource {
    /// A sandbox that waits for its owner, or is still being made.
    Warm,
    /// Part of a sandbox: its network slot, its cgroup and its first process.
    Prepared,
    /// Nothing: all of it will be made.
    Fresh,
}

/// A reservation as it can be told to another machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserved {
    /// Of the sandbox that is created with it. No other reservation ever has the same.
    pub id: SandboxId,
    pub source: ReservationSource,
    /// The node releases it then, if nobody has. A create that comes later is served all the same.
    pub until: Option<UnixMillis>,
}

/// Whoever keeps what is reserved.
pub trait Release: Send + Sync + fmt::Debug {
    /// No create with this reservation will follow. Idempotent, does nothing to one that a create has
    /// used, and must not block: whatever has to be ended is ended later.
    fn release(&self, reserved: &Reserved);
}

/// A place for a create with its id, released when it is dropped. Held until that create has
/// answered: it is used up by then.
#[derive(Debug)]
#[must_use = "it is released when it is dropped"]
pub struct Reservation {
    reserved: Reserved,
    /// Absent when nothing is kept.
    keeper: Option<Weak<dyn Release>>,
}

impl Reservation {
    pub fn new(
        id: SandboxId,
        source: ReservationSource,
        holds: Duration,
        keeper: Weak<dyn Release>,
    ) -> Self {
        let until = Some(UnixMillis::now().plus(holds));
        Self {
            reserved: Reserved { id, source, until },
            keeper: Some(keeper),
        }
    }

    /// An id that nobody has.
    pub fn fresh() -> Self {
        Self {
            reserved: Reserved {
                id: SandboxId::random(),
                source: ReservationSource::Fresh,
                until: None,
            },
            keeper: None,
        }
    }

    pub fn id(&self) -> &SandboxId {
        &self.reserved.id
    }

    pub fn source(&self) -> ReservationSource {
        self.reserved.source
    }

    pub fn reserved(&self) -> &Reserved {
        &self.reserved
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.as_ref().and_then(Weak::upgrade) {
            keeper.release(&self.reserved);
        }
    }
}
