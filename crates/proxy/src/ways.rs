//! How many ways into sandboxes may be open at a time. Each takes a descriptor, and one client's
//! connection may ask for thousands: without a bound none would be left for the server's own work,
//! not even for ending what takes them.
//!
//! A client's address may have half of them. Who finds none free waits a moment, first come, first
//! served; an address that has its half waits for its own only.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{descriptors, neighbours};

/// For one of the others to end.
const PATIENCE: Duration = Duration::from_secs(5);
/// Nobody tells when other parts of the server close something.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WayLimits {
    /// At a time.
    pub most: usize,
    /// While this process has so many descriptors open, no way is opened.
    pub descriptors: u64,
}

impl Default for WayLimits {
    /// No limits.
    fn default() -> Self {
        Self {
            most: Semaphore::MAX_PERMITS,
            descriptors: u64::MAX,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Ways {
    limits: WayLimits,
    all: Arc<Semaphore>,
    shares: Mutex<HashMap<IpAddr, Weak<Semaphore>>>,
    /// Ways whose descriptor may not be there to be counted yet.
    dialling: Arc<AtomicUsize>,
}

/// One way, until this is dropped. Lives and dies with the socket.
#[derive(Debug)]
pub(crate) struct Way {
    dialling: Option<Dialling>,
    _of_all: OwnedSemaphorePermit,
    _of_the_share: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct Dialling(Arc<AtomicUsize>);

impl Ways {
    pub(crate) fn new(limits: WayLimits) -> Self {
        let most = limits.most.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            limits: WayLimits { most, ..limits },
            all: Arc::new(Semaphore::new(most)),
            shares: Mutex::default(),
            dialling: Arc::default(),
        }
    }

    /// A way for this client; `None` when none was free in time.
    pub(crate) async fn take(&self, client: IpAddr) -> Option<Way> {
        let client = neighbours(client);
        let take = async {
            // In this order: who waits for its own keeps none from others.
            let of_the_share = self.share(client).acquire_owned().await.ok()?;
            let of_all = Arc::clone(&self.all).acquire_owned().await.ok()?;
            let dialling = loop {
                match self.begin() {
                    Some(dialling) => break dialling,
                    None => tokio::time::sleep(LOOK_AGAIN).await,
                }
            };
            Some(Way {
                dialling: Some(dialling),
                _of_all: of_all,
                _of_the_share: of_the_share,
            })
        };
        tokio::time::timeout(PATIENCE, take).await.ok().flatten()
    }

    fn share(&self, client: IpAddr) -> Arc<Semaphore> {
        let mut shares = self.shares.lock();
        if let Some(share) = shares.get(&client).and_then(Weak::upgrade) {
            return share;
        }
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(self.limits.most.div_ceil(2)));
        shares.insert(client, Arc::downgrade(&share));
        share
    }

    fn begin(&self) -> Option<Dialling> {
        let others = self.dialling.fetch_add(1, Relaxed);
        let dialling = Dialling(Arc::clone(&self.dialling));
        let taken = descriptors::in_use().saturating_add(others as u64);
        (taken < self.limits.descriptors).then_some(dialling)
    }
}

impl Way {
    /// Its descriptor is open, and counts as such from now on.
    pub(crate) fn is_open(&mut self) {
        self.dialling = None;
    }
}

impl Drop for Dialling {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::time::Instant;

    use super::*;

    fn ways(most: usize) -> Ways {
        Ways::new(WayLimits {
            most,
            ..WayLimits::default()
        })
    }

    fn client(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_with_half_of_all_ways_waits_for_its_own_and_others_do_not() {
        let ways = ways(8);
        let mut first = Vec::new();
        for _ in 0..4 {
            first.push(ways.take(client(1)).await.unwrap());
        }
        let started = Instant::now();
        assert!(ways.take(client(1)).await.is_none());
        assert_eq!(started.elapsed(), PATIENCE);
        let started = Instant::now();
        let other = ways.take(client(2)).await.unwrap();
        assert!(started.elapsed().is_zero());

        let (again, ()) = tokio::join!(ways.take(client(1)), async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            first.pop();
        });
        assert!(again.is_some());
        drop((first, again, other));
        assert_eq!(ways.all.available_permits(), 8);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_gets_more_than_there_are() {
        let ways = ways(4);
        let mut open = Vec::new();
        for last in 1..=4 {
            open.push(ways.take(client(last)).await.unwrap());
        }
        assert!(ways.take(client(5)).await.is_none());
        open.pop();
        assert!(ways.take(client(5)).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn descriptors_that_others_use_are_not_there_for_ways() {
        let limited = |descriptors| {
            Ways::new(WayLimits {
                most: 1000,
                descriptors,
            })
        };
        assert!(limited(0).take(client(1)).await.is_none());

        // However many come together, before any of them has a descriptor that could be counted.
        let ways = limited(descriptors::in_use() + 50);
        let all = (1..=200)
            .cycle()
            .take(900)
            .map(|last| ways.take(client(last)));
        let taken = futures_util::future::join_all(all).await;
        let granted = taken.iter().flatten().count();
        // Other tests of this process open and close some too.
        assert!(granted < 300, "{granted}");
        drop(taken);
        assert_eq!(ways.dialling.load(Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn clients_who_left_are_forgotten() {
        let ways = ways(8);
        for last in 1..=100 {
            drop(ways.take(client(last)).await.unwrap());
        }
        assert_eq!(ways.shares.lock().len(), 1);
    }
}
