//! One sandbox's network, and the table of all slots.
//!
//! ```text
//! free ──lease──► used ──drop──► leaving ──link gone──► free
//!                                   ▲ │
//!        links of a former server ──┘ └──adopt──► used
//! ```
//! A slot is given out again only when its link has really left the host: the sandbox's processes
//! may outlive the `Slot` value, and its address is theirs until the last of them is gone.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::NetStats;

/// A network namespace with an address and a route to the host.
#[derive(Debug)]
pub struct Slot {
    // Closed before the lease ends: fields are dropped in this order.
    pub(crate) netns: OwnedFd,
    pub(crate) address: Ipv4Addr,
    pub(crate) gateway: Ipv4Addr,
    pub(crate) link: String,
    pub(crate) lease: Lease,
}

impl Slot {
    pub fn index(&self) -> u32 {
        self.lease.index
    }

    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Also where the sandbox's name server is.
    pub fn gateway(&self) -> Ipv4Addr {
        self.gateway
    }

    /// The host's end of the veth pair.
    pub fn host_interface(&self) -> &str {
        &self.link
    }

    pub fn netns(&self) -> BorrowedFd<'_> {
        self.netns.as_fd()
    }
}

impl Drop for Slot {
    /// Whoever never sent a packet has no connections in the kernel's table: looking for them would
    /// take longer than all the rest of its end. The link exists as long as the namespace is open.
    fn drop(&mut self) {
        let received = format!("/sys/class/net/{}/statistics/rx_packets", self.link);
        let silent = std::fs::read_to_string(received).is_ok_and(|count| count.trim() == "0");
        if !silent {
            self.lease
                .slot_table
                .state
                .lock()
                .has_sent
                .insert(self.lease.index);
        }
    }
}

/// The right to use a slot's number.
pub(crate) struct Lease {
    pub(crate) index: u32,
    slot_table: Arc<SlotTable>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.slot_table.state.lock().leaving.insert(self.index);
        self.slot_table.released.notify_one();
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Lease({})", self.index)
    }
}

/// The state of every slot number.
#[derive(Debug)]
pub(crate) struct SlotTable {
    state: Mutex<TableState>,
    max: u32,
    /// A slot is on its way out: somebody should watch it go.
    pub(crate) released: Notify,
    /// A number became free, or a ready slot was taken.
    pub(crate) changed: Notify,
    /// A number or a ready slot came: for those who found none.
    pub(crate) available: Notify,
}

#[derive(Debug)]
struct TableState {
    /// Oldest first, so that an address stays unused as long as possible before its next owner.
    free: VecDeque<u32>,
    leaving: BTreeSet<u32>,
    /// Those that may have connections in the kernel's table.
    has_sent: BTreeSet<u32>,
    ready: VecDeque<Slot>,
    /// Slots being built for the pool: taken, but soon anybody's.
    building: usize,
}

impl SlotTable {
    /// `present` are the numbers whose links exist already.
    pub(crate) fn new(max: u32, present: BTreeSet<u32>) -> Self {
        let free = (0..max).filter(|index| !present.contains(index)).collect();
        Self {
            state: Mutex::new(TableState {
                free,
                has_sent: present.clone(),
                leaving: present,
                ready: VecDeque::new(),
                building: 0,
            }),
            max,
            released: Notify::new(),
            changed: Notify::new(),
            available: Notify::new(),
        }
    }

    pub(crate) fn lease(self: &Arc<Self>) -> Option<Lease> {
        let index = self.state.lock().free.pop_front()?;
        Some(Lease {
            index,
            slot_table: Arc::clone(self),
        })
    }

    /// Takes over a number whose link exists but which nobody here has.
    pub(crate) fn claim(self: &Arc<Self>, index: u32) -> Option<Lease> {
        let claimed = self.state.lock().leaving.remove(&index);
        claimed.then(|| Lease {
            index,
            slot_table: Arc::clone(self),
        })
    }

    pub(crate) fn is_free(&self, index: u32) -> bool {
        self.state.lock().free.contains(&index)
    }

    pub(crate) fn leaving(&self) -> Vec<u32> {
        self.state.lock().leaving.iter().copied().collect()
    }

    pub(crate) fn has_sent(&self, index: u32) -> bool {
        self.state.lock().has_sent.contains(&index)
    }

    /// The link is gone, and so is what it left.
    pub(crate) fn release(&self, index: u32) {
        let mut state = self.state.lock();
        state.has_sent.remove(&index);
        if state.leaving.remove(&index) && index < self.max {
            state.free.push_back(index);
            drop(state);
            self.changed.notify_one();
            self.available.notify_waiters();
        }
    }

    /// A number for a slot that will be put into the pool.
    pub(crate) fn lease_for_pool(self: &Arc<Self>) -> Option<Lease> {
        let lease = self.lease()?;
        self.state.lock().building += 1;
        Some(lease)
    }

    /// What came of it.
    pub(crate) fn built_for_pool(&self, slot: Option<Slot>) {
        let mut state = self.state.lock();
        state.building -= 1;
        state.ready.extend(slot);
        drop(state);
        self.available.notify_waiters();
    }

    /// Whether a slot will come that nobody has to give up.
    pub(crate) fn will_have_one(&self) -> bool {
        let state = self.state.lock();
        state.building > 0 || !state.leaving.is_empty()
    }

    pub(crate) fn take_ready(&self) -> Option<Slot> {
        let slot = self.state.lock().ready.pop_front();
        if slot.is_some() {
            self.changed.notify_one();
        }
        slot
    }

    pub(crate) fn drain_ready(&self) {
        let ready = std::mem::take(&mut self.state.lock().ready);
        drop(ready);
    }

    pub(crate) fn stats(&self) -> NetStats {
        let state = self.state.lock();
        let (free, pool) = (state.free.len(), state.ready.len());
        let known = free + pool + state.leaving.len();
        NetStats {
            free,
            pool,
            used: (self.max as usize).saturating_sub(known),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_lease_is_free_only_after_its_link_left() {
        let slot_table = Arc::new(SlotTable::new(2, BTreeSet::new()));
        let lease = slot_table.lease().unwrap();
        drop(lease);
        assert_eq!(slot_table.leaving(), [0]);
        assert_eq!(slot_table.lease().unwrap().index, 1);
        assert!(slot_table.lease().is_none());
        slot_table.release(0);
        assert_eq!(slot_table.lease().unwrap().index, 0);
    }

    #[test]
    fn only_a_present_number_can_be_claimed_and_only_once() {
        let slot_table = Arc::new(SlotTable::new(4, BTreeSet::from([2])));
        assert!(slot_table.claim(1).is_none());
        let lease = slot_table.claim(2).unwrap();
        assert!(slot_table.claim(2).is_none());
        assert_eq!(
            slot_table.stats(),
            NetStats {
                free: 3,
                used: 1,
                pool: 0
            }
        );
        drop(lease);
        assert_eq!(slot_table.leaving(), [2]);
    }
}
