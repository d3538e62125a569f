//! Places for sandboxes, made ahead: a network slot, a cgroup, and a `soulbox-init` that waits in
//! both.
//!
//! Joining a cgroup and making one wait for the whole kernel (a grace period, a lock that all
//! groups share), for many times what the rest of a start takes. So that no create waits for it,
//! some berths are kept ready. A berth has the id of the sandbox that it will be, because its
//! group is named by it; whoever makes a sandbox asks for such an id ([`Berths::promise`]).
//!
//! ```text
//! made ──► ready ──promise──────► promised ──take──► a sandbox
//!            │                        │
//!            └─ given up, dead ─► unwanted ◄─ refused, or never asked for
//! ```
//!
//! An id is promised once. What became of a promise may not be known here: somebody may have
//! written the id down.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use soulbox_cgroup::{Cgroup, CgroupLimits};
use soulbox_net::Slot;
use soulbox_types::SandboxId;
use tokio::sync::Notify;

use crate::launch::Parked;

/// More than anybody waits between the choice of an id and the start of its sandbox: whoever comes
/// later would meet the removal of what was kept for them.
const PROMISE_HOLDS: Duration = Duration::from_mins(3);

#[derive(Debug)]
pub(crate) struct Berth {
    pub(crate) id: SandboxId,
    // Ends before the slot is given back.
    pub(crate) init: Parked,
    pub(crate) cgroup: Cgroup,
    pub(crate) limits: CgroupLimits,
    /// Of its user namespace.
    pub(crate) first_id: u32,
    pub(crate) slot: Slot,
}

/// Those that nobody uses yet.
#[derive(Debug)]
pub(crate) struct Berths {
    wanted: usize,
    pages: Mutex<Pages>,
    /// One was taken, or a promise is to be looked after.
    pub(crate) changed: Notify,
}

#[derive(Debug)]
struct Pages {
    ready: VecDeque<Berth>,
    promised: HashMap<SandboxId, (Berth, Instant)>,
    /// To be removed.
    unwanted: Vec<Berth>,
    making: usize,
    /// What the last sandbox asked for: most likely the next one does too.
    usual: CgroupLimits,
    /// Only after what an earlier run left was removed: it could not be told from ours.
    opened: bool,
    closed: bool,
}

impl Berths {
    pub(crate) fn new(wanted: usize, usual: CgroupLimits) -> Self {
        let pages = Pages {
            ready: VecDeque::new(),
            promised: HashMap::new(),
            unwanted: Vec::new(),
            making: 0,
            usual,
            opened: false,
            closed: false,
        };
        Self {
            wanted,
            pages: Mutex::new(pages),
            changed: Notify::new(),
        }
    }

    /// From now on they may be made.
    pub(crate) fn open(&self) {
        self.pages.lock().opened = true;
        self.changed.notify_one();
    }

    /// The id of a berth that is kept for a sandbox of this id, for a moment.
    pub(crate) fn promise(&self, now: Instant) -> Option<SandboxId> {
        let mut pages = self.pages.lock();
        let berth = pages.ready.pop_front()?;
        let id = berth.id.clone();
        pages
            .promised
            .insert(id.clone(), (berth, now + PROMISE_HOLDS));
        Some(id)
    }

    /// The berth that was promised, if there was a promise and its init is still there.
    pub(crate) fn take(&self, id: &SandboxId, limits: &CgroupLimits) -> Option<Berth> {
        let mut pages = self.pages.lock();
        pages.usual = *limits;
        let taken = pages.promised.remove(id);
        drop(pages);
        let (berth, _) = taken?;
        self.changed.notify_one();
        Some(berth)
    }

    /// The sandbox of this id will not be made.
    pub(crate) fn forget(&self, id: &SandboxId) {
        let mut pages = self.pages.lock();
        if let Some((berth, _)) = pages.promised.remove(id) {
            pages.unwanted.push(berth);
            self.changed.notify_one();
        }
    }

    /// Those that nobody will use, to be removed.
    pub(crate) fn unwanted(&self, now: Instant) -> Vec<Berth> {
        let mut pages = self.pages.lock();
        pages.break_promises(now);
        pages.drop_dead();
        std::mem::take(&mut pages.unwanted)
    }

    /// One that waits, to be given up for somebody who needs its network slot.
    pub(crate) fn give_up_one(&self) -> Option<Berth> {
        self.pages.lock().ready.pop_front()
    }

    /// Whether to make one more, and with which limits. Counts it as being made.
    pub(crate) fn begin(&self) -> Option<CgroupLimits> {
        let mut pages = self.pages.lock();
        let there = pages.ready.len() + pages.promised.len() + pages.making;
        if !pages.opened || pages.closed || there >= self.wanted {
            return None;
        }
        pages.making += 1;
        Some(pages.usual)
    }

    /// What came of it; a berth that nobody wants any more is given back.
    pub(crate) fn made(&self, berth: Option<Berth>) -> Option<Berth> {
        let mut pages = self.pages.lock();
        pages.making -= 1;
        if pages.closed {
            return berth;
        }
        pages.ready.extend(berth);
        None
    }

    /// No more of them: all that are there.
    pub(crate) fn close(&self) -> Vec<Berth> {
        let mut pages = self.pages.lock();
        pages.closed = true;
        let promised = std::mem::take(&mut pages.promised);
        let ready = std::mem::take(&mut pages.ready);
        self.changed.notify_one();
        let promised = promised.into_values().map(|(berth, _)| berth);
        let unwanted = std::mem::take(&mut pages.unwanted);
        ready.into_iter().chain(promised).chain(unwanted).collect()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.pages.lock().closed
    }
}

impl Pages {
    /// Nobody is served faster by a berth whose init was killed, and its group would stay until
    /// somebody comes.
    fn drop_dead(&mut self) {
        for berth in std::mem::take(&mut self.ready) {
            if berth.init.is_alive() {
                self.ready.push_back(berth);
            } else {
                self.unwanted.push(berth);
            }
        }
    }

    /// The create that was to come has failed before it got here, and nobody said so.
    fn break_promises(&mut self, now: Instant) {
        let late: Vec<SandboxId> = self
            .promised
            .iter()
            .filter(|(_, (_, until))| *until <= now)
            .map(|(id, _)| id.clone())
            .collect();
        for id in late {
            if let Some((berth, _)) = self.promised.remove(&id) {
                self.unwanted.push(berth);
            }
        }
    }
}
