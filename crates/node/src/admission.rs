//! Admission control: whether one more sandbox fits, asked before it is made.
//!
//! ```text
//!                     plenty of room, nobody waits: no await, no I/O
//!  create ──────────────────────────────────────────────────────────► permit
//!     │                                                                 ▲
//!     └─► in line (in order of arrival) ─► head: a start, then room ────┘
//!                                           │  lacking: warm ones are given up, then wait
//!                                           └─► refused, with the resource and the amounts
//! ```
//!
//! A sandbox is in the node's entries from the moment that it was asked for, so that it can be
//! ended while it waits; what it holds (it counts as one, and has a share of promised memory
//! and cpu) it has from its admission on. What it will use, but does not yet, is set aside until it is ready, and counts on
//! until the machine has been looked at after that.
//!
//! The head of the line waits for what lacks; those behind it wait for the head. A time in which
//! nobody could be let in counts for all who were there, so a full machine refuses a whole burst
//! after one wait, not one after the other.
//!
//! # Layout
//! - `config`: what the operator decides
//! - `resource`: what can lack, in words
//! - `gauge`: what is used of the machine now; `machine`: the real one, with the slice;
//!   `shared`: what the kernel has one number of
//! - `ledger`: the latest look, and what is set aside
//! - `estimate`: what a sandbox will need
//! - `allocation`: how many sandboxes there are, and promised limits
//! - `controller`: line, starts, counts

mod allocation;
mod config;
mod controller;
mod estimate;
mod gauge;
mod ledger;
mod machine;
mod resource;
mod shared;

pub(crate) use allocation::Allocation;
pub use config::{AdmissionConfig, Overcommit};
pub use controller::AdmissionStats;
pub(crate) use controller::{AdmissionController, CapacityReservation, Permit};
pub use gauge::{Gauge, Level, Reading};
pub use machine::{MachineGauge, SliceError};
pub use resource::Resource;

use std::{sync::Arc, time::Duration};

use soulbox_runtime::{Error, Result};
use soulbox_types::{EndReason, SandboxSpec};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::LocalNode;
use ledger::{Need, Verdict};
use resource::Shortage;

/// For one's turn. Less than what clients wait for a create, more than a burst of a thousand needs.
const LINE_LIMIT: Duration = Duration::from_secs(40);
/// Not everything that frees something tells admission control.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What somebody asks admission control for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    /// A sandbox that somebody waits for.
    New,
    /// One that nobody uses yet: it never waits, nor comes before those who do.
    Warm,
    /// Processes for one that is paused on its disk.
    Restart,
    /// Cpu for one that is paused in memory.
    Thaw,
}

impl Ask {
    /// Waking what is in memory starts nothing; the pool has a limit of its own.
    fn needs_start(self) -> bool {
        matches!(self, Self::New | Self::Restart)
    }
}

impl LocalNode {
    /// Lets a sandbox that is in the entries pass, or says why not. Ends early when its end begins.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        spec: &SandboxSpec,
        ask: Ask,
        ending: &CancellationToken,
    ) -> Result<Permit> {
        self.stuck_ends().check()?;
        let (admission, need) = (self.admission(), self.need_of(spec, ask));
        if admission.closed.is_cancelled() {
            return Err(admission.refuse(Shortage::stopping()));
        }
        if let Some(permit) = self.admit_at_once(spec, ask, need) {
            return Ok(permit);
        }
        if ask == Ask::Warm {
            return self.admit_without_waiting(spec, need).await;
        }
        let gone = || Error::SandboxNotFound(spec.id.clone());
        tokio::select! {
            () = ending.cancelled() => Err(gone()),
            () = admission.closed.cancelled() => Err(admission.refuse(Shortage::stopping())),
            admitted = self.admit_from_queue(spec, ask, need) => admitted,
        }
    }

    fn need_of(&self, spec: &SandboxSpec, ask: Ask) -> Need {
        match ask {
            Ask::Thaw => Need::default(),
            _ => self.admission().estimates.need_of(spec),
        }
    }

    /// When nobody waits and there is plenty of everything.
    fn admit_at_once(&self, spec: &SandboxSpec, ask: Ask, need: Need) -> Option<Permit> {
        let admission = self.admission();
        let _head = admission.line.try_lock().ok()?;
        let start = if ask.needs_start() {
            Some(Arc::clone(&admission.starts).try_acquire_owned().ok()?)
        } else {
            None
        };
        let reserved = self.try_admit(spec, ask, need, false).ok()?;
        Some(Permit { start, reserved })
    }

    async fn admit_without_waiting(
        self: &Arc<Self>,
        spec: &SandboxSpec,
        need: Need,
    ) -> Result<Permit> {
        let admission = self.admission();
        // Before the line is taken: nobody shall wait behind one that nobody uses.
        admission.look_again().await;
        let Ok(_head) = admission.line.try_lock() else {
            return Err(Shortage::starts(admission.waiting()).into());
        };
        match self.try_admit(spec, Ask::Warm, need, true) {
            Ok(reserved) => Ok(Permit {
                start: None,
                reserved,
            }),
            Err(Verdict::Shortage(shortage)) => Err(shortage.into()),
            Err(Verdict::Unsure) => Err(Shortage::starts(admission.waiting()).into()),
        }
    }

    async fn admit_from_queue(
        self: &Arc<Self>,
        spec: &SandboxSpec,
        ask: Ask,
        need: Need,
    ) -> Result<Permit> {
        let admission = self.admission();
        let arrived = Instant::now();
        let _counted = admission.count_waiting();
        let (_head, start) = admission
            .come_to_the_front(ask, arrived + LINE_LIMIT)
            .await?;
        // The last look at the machine decides, even if something changed meanwhile.
        let mut decides = false;
        loop {
            let shortage = match self.try_admit(spec, ask, need, decides) {
                Ok(reserved) => return Ok(Permit { start, reserved }),
                Err(Verdict::Shortage(shortage)) => shortage,
                Err(Verdict::Unsure) => {
                    admission.look_again().await;
                    decides = true;
                    continue;
                }
            };
            decides = false;
            let until = arrived.max(admission.short_since()) + admission.config.wait;
            if shortage.forever {
                return Err(admission.refuse(shortage));
            }
            if self.give_up_one_that_waits(until).await {
                continue;
            }
            if Instant::now() >= until {
                return Err(admission.refuse(shortage));
            }
            let next = until.min(Instant::now() + LOOK_AGAIN);
            tokio::select! {
                () = admission.changed.notified() => {}
                () = sleep_until(next) => {}
            }
        }
    }

    /// Nothing is held when it fails.
    fn try_admit(
        &self,
        spec: &SandboxSpec,
        ask: Ask,
        need: Need,
        decides: bool,
    ) -> Result<CapacityReservation, Verdict> {
        if matches!(ask, Ask::New | Ask::Warm) {
            self.check_room_on_disk().map_err(Verdict::Shortage)?;
        }
        let hold = || self.allocate(spec, ask);
        self.admission().reserve(need, decides, hold)
    }

    fn check_room_on_disk(&self) -> Result<(), Shortage> {
        match self.space() {
            Ok(space) if space.free < space.reserve => {
                Err(Shortage::disk(space.free, space.reserve))
            }
            // What cannot be asked does not lack: the create itself will say what is wrong.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Ends one of the pool and waits for that, at most until `until`. `false`: there was none.
    async fn give_up_one_that_waits(self: &Arc<Self>, until: Instant) -> bool {
        let Some(id) = self.pool().give_up_one() else {
            return false;
        };
        let node = Arc::clone(self);
        // In a task of its own: an end that has begun must not stop half-way.
        let ended = tokio::spawn(async move {
            let detail = "its place is needed";
            node.finish(&id, EndReason::Killed, detail).await;
        });
        let _late = timeout_at(until, ended).await.is_err();
        true
    }
}
