//! How many queries one sandbox, and all of them, may have in flight.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use parking_lot::Mutex;

/// Counts what is under way; a full count refuses instead of queueing. The fuller it is, the less one
/// source may have: at most as much as is left for all others, so that something always is.
#[derive(Debug)]
pub(crate) struct Admission {
    each: usize,
    all: usize,
    under_way: Mutex<HashMap<Ipv4Addr, usize>>,
}

/// Permission for one query; released when dropped.
#[derive(Debug)]
pub(crate) struct AdmissionPermit {
    source: Ipv4Addr,
    admission: Arc<Admission>,
}

impl Admission {
    pub(crate) fn new(each: usize, all: usize) -> Arc<Self> {
        Arc::new(Self {
            each,
            all,
            under_way: Mutex::default(),
        })
    }

    pub(crate) fn admit(self: &Arc<Self>, source: Ipv4Addr) -> Option<AdmissionPermit> {
        let mut under_way = self.under_way.lock();
        let total: usize = under_way.values().sum();
        let own = under_way.get(&source).copied().unwrap_or(0);
        let left = self.all.saturating_sub(total);
        if own >= self.each.min(left) {
            return None;
        }
        under_way.insert(source, own + 1);
        Some(AdmissionPermit {
            source,
            admission: Arc::clone(self),
        })
    }
}

impl Drop for AdmissionPermit {
    fn drop(&mut self) {
        let mut under_way = self.admission.under_way.lock();
        match under_way.get_mut(&self.source) {
            Some(own) if *own > 1 => *own -= 1,
            _ => {
                under_way.remove(&self.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_greedy_source_leaves_room_for_others() {
        let admission = Admission::new(2, 3);
        let (greedy, other) = (Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 0, 3));
        let first = admission.admit(greedy).unwrap();
        let _second = admission.admit(greedy).unwrap();
        assert!(admission.admit(greedy).is_none());
        let _third = admission.admit(other).unwrap();
        assert!(admission.admit(other).is_none(), "three in all");
        drop(first);
        assert!(
            admission.admit(other).is_none(),
            "it has as many as are left"
        );
        assert!(admission.admit(Ipv4Addr::new(10, 0, 0, 4)).is_some());
    }

    #[test]
    fn a_crowd_of_greedy_sources_leaves_room_for_others() {
        let admission = Admission::new(64, 1024);
        let mut taken = Vec::new();
        for _ in 0..64 {
            for last in 1..=250 {
                taken.extend(admission.admit(Ipv4Addr::new(10, 0, 0, last)));
            }
        }
        for last in 1..=3 {
            let another = admission.admit(Ipv4Addr::new(10, 0, 1, last));
            assert!(another.is_some(), "{} are under way", taken.len());
            taken.extend(another);
        }
    }
}
