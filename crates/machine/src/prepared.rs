//! Prepared slots: a network slot, a cgroup, and a `soulbox-init` that waits in both.
//!
//! Joining a cgroup and making one wait for the whole kernel (a grace period, a lock that all
//! groups share), for many times what the rest of a start takes. So that no create waits for it,
//! some slots are kept prepared. One has the id of the sandbox that it will be, because its group
//! is named by it; whoever makes a sandbox asks for such an id ([`PreparedSlots::reserve`]).
//!
//! ```text
//! made ──► ready ──reserve──► reserved ──take──► a sandbox
//!            │                    │ released         ▲
//!            └─ given up, dead ─► unwanted ──take────┤
//!                                 │                  │
//!                                 removed ── another ┘
//! ```
//!
//! An id is reserved once: somebody may have written it down. A create that comes after its
//! reservation was released gets the slot all the same or, if its removal has begun, waits for that:
//! whatever runs in the group of that name is ended.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Instant,
};

use parking_lot::Mutex;
use soulbox_cgroup::{Cgroup, CgroupLimits};
use soulbox_net::{NetStats, Slot};
use soulbox_runtime::PREPARED_HOLDS;
use soulbox_types::SandboxId;
use tokio::sync::Notify;

use crate::launch::Parked;

#[derive(Debug)]
pub struct PreparedSlot {
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
pub(crate) struct PreparedSlots {
    wanted: usize,
    all: Mutex<All>,
    /// One was taken or released.
    pub(crate) changed: Notify,
    removed: Notify,
}

#[derive(Debug)]
struct All {
    ready: VecDeque<PreparedSlot>,
    reserved: HashMap<SandboxId, (PreparedSlot, Instant)>,
    /// To be removed.
    unwanted: Vec<PreparedSlot>,
    /// Being removed.
    removing: HashSet<SandboxId>,
    making: usize,
    /// What the last sandbox asked for: most likely the next one does too.
    usual: CgroupLimits,
    /// Only after what an earlier run left was removed: it could not be told from ours.
    opened: bool,
    closed: bool,
}

impl PreparedSlots {
    pub(crate) fn new(wanted: usize, usual: CgroupLimits) -> Self {
        let all = All {
            ready: VecDeque::new(),
            reserved: HashMap::new(),
            unwanted: Vec::new(),
            removing: HashSet::new(),
            making: 0,
            usual,
            opened: false,
            closed: false,
        };
        Self {
            wanted,
            all: Mutex::new(all),
            changed: Notify::new(),
            removed: Notify::new(),
        }
    }

    /// From now on they may be made.
    pub(crate) fn open(&self) {
        self.all.lock().opened = true;
        self.changed.notify_one();
    }

    pub(crate) fn is_open(&self) -> bool {
        self.all.lock().opened
    }

    /// The id of a slot that is kept for a sandbox of this id.
    pub(crate) fn reserve(&self, now: Instant) -> Option<SandboxId> {
        let mut all = self.all.lock();
        let slot = all.ready.pop_front()?;
        let id = slot.id.clone();
        all.reserved
            .insert(id.clone(), (slot, now + PREPARED_HOLDS));
        Some(id)
    }

    /// The slot that was reserved, if there is one. Nothing of that id is being removed afterwards.
    pub(crate) async fn take(&self, id: &SandboxId, limits: &CgroupLimits) -> Option<PreparedSlot> {
        loop {
            // Before the look, so that no removal is missed.
            let removed = self.removed.notified();
            {
                let mut all = self.all.lock();
                if !all.removing.contains(id) {
                    all.usual = *limits;
                    let taken = all.take(id)?;
                    self.changed.notify_one();
                    return Some(taken);
                }
            }
            removed.await;
        }
    }

    /// The sandbox of this id will not be made.
    pub(crate) fn release(&self, id: &SandboxId) {
        let mut all = self.all.lock();
        if let Some((slot, _)) = all.reserved.remove(id) {
            all.unwanted.push(slot);
            self.changed.notify_one();
        }
    }

    /// Those that nobody will use, to be removed: [`Self::removed`] is to be told of each.
    pub(crate) fn unwanted(&self, now: Instant) -> Vec<PreparedSlot> {
        let mut all = self.all.lock();
        let late = all.reserved.extract_if(|_, (_, until)| *until <= now);
        let late: Vec<_> = late.map(|(_, (slot, _))| slot).collect();
        all.unwanted.extend(late);
        all.drop_dead();
        all.begin_removal()
    }

    pub(crate) fn removed(&self, id: &SandboxId) {
        if self.all.lock().removing.remove(id) {
            self.removed.notify_waiters();
        }
    }

    /// One that waits, to be given up for somebody who needs its network slot.
    pub(crate) fn give_up_one(&self) -> Option<PreparedSlot> {
        self.all.lock().ready.pop_front()
    }

    /// To the network each of them is given out; to whoever counts it waits for a sandbox.
    pub(crate) fn counted_ready(&self, stats: NetStats) -> NetStats {
        count_ready(stats, self.all.lock().ready.len())
    }

    /// Whether to make one more, and with which limits. Counts it as being made.
    pub(crate) fn begin(&self) -> Option<CgroupLimits> {
        let mut all = self.all.lock();
        let there = all.ready.len() + all.reserved.len() + all.making;
        if !all.opened || all.closed || there >= self.wanted {
            return None;
        }
        all.making += 1;
        Some(all.usual)
    }

    /// What came of it; a slot that nobody wants any more is given back.
    pub(crate) fn made(&self, slot: Option<PreparedSlot>) -> Option<PreparedSlot> {
        let mut all = self.all.lock();
        all.making -= 1;
        if all.closed {
            return slot;
        }
        all.ready.extend(slot);
        None
    }

    /// No more of them: all that are there, to be removed.
    pub(crate) fn close(&self) -> Vec<PreparedSlot> {
        let mut all = self.all.lock();
        all.closed = true;
        let ready = std::mem::take(&mut all.ready);
        let reserved = std::mem::take(&mut all.reserved);
        let reserved = reserved.into_values().map(|(slot, _)| slot);
        all.unwanted.extend(ready.into_iter().chain(reserved));
        self.changed.notify_one();
        all.begin_removal()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.all.lock().closed
    }
}

impl All {
    fn take(&mut self, id: &SandboxId) -> Option<PreparedSlot> {
        if let Some((slot, _)) = self.reserved.remove(id) {
            return Some(slot);
        }
        let released = self.unwanted.iter().position(|slot| slot.id == *id)?;
        Some(self.unwanted.swap_remove(released))
    }

    fn begin_removal(&mut self) -> Vec<PreparedSlot> {
        let ids = self.unwanted.iter().map(|slot| slot.id.clone());
        self.removing.extend(ids);
        std::mem::take(&mut self.unwanted)
    }

    /// Nobody is served faster by a slot whose init was killed, and its group would stay until
    /// somebody comes.
    fn drop_dead(&mut self) {
        for slot in std::mem::take(&mut self.ready) {
            if slot.init.is_alive() {
                self.ready.push_back(slot);
            } else {
                self.unwanted.push(slot);
            }
        }
    }
}

/// The two are counted one after the other: a slot may have been taken meanwhile.
fn count_ready(stats: NetStats, prepared: usize) -> NetStats {
    let waiting = prepared.min(stats.used);
    NetStats {
        pool: stats.pool + waiting,
        used: stats.used - waiting,
        ..stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_prepared_is_ready_and_not_used() {
        let stats = NetStats {
            free: 90,
            used: 9,
            pool: 1,
        };
        let counted = count_ready(stats, 8);
        assert_eq!((counted.free, counted.used, counted.pool), (90, 1, 9));
        assert_eq!(count_ready(stats, 20).used, 0);
    }
}
