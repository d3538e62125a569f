//! How many streams into sandboxes may be open at a time. Each needs a descriptor, and one client's
//! connection may ask for thousands: without a limit none would be left for the server's own work,
//! not even for ending what uses them.
//!
//! One client may have half of them. A stream that finds no permit waits for a moment, first come,
//! first served; one of a client that has its half waits for that client's own only.

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

use crate::{client_subnet, descriptors};

/// For another stream to end.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// There is no event for descriptors that other parts of the server close.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamLimits {
    /// Streams at a time.
    pub max_open: usize,
    /// While this process has so many descriptors open, no stream is opened.
    pub max_descriptors: u64,
}

impl Default for StreamLimits {
    /// No limits.
    fn default() -> Self {
        Self {
            max_open: Semaphore::MAX_PERMITS,
            max_descriptors: u64::MAX,
        }
    }
}

#[derive(Debug)]
pub(crate) struct StreamLimiter {
    limits: StreamLimits,
    all: Arc<Semaphore>,
    per_client: Mutex<HashMap<IpAddr, Weak<Semaphore>>>,
    /// Permits whose descriptor may not be open yet, and so is not counted.
    dialling: Arc<AtomicUsize>,
}

/// The right to one stream, until this is dropped. Owned by the connection into the sandbox.
#[derive(Debug)]
pub(crate) struct StreamPermit {
    dialling: Option<Dialling>,
    _of_all: OwnedSemaphorePermit,
    _of_client: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct Dialling(Arc<AtomicUsize>);

impl StreamLimiter {
    pub(crate) fn new(limits: StreamLimits) -> Self {
        let max_open = limits.max_open.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            limits: StreamLimits { max_open, ..limits },
            all: Arc::new(Semaphore::new(max_open)),
            per_client: Mutex::default(),
            dialling: Arc::default(),
        }
    }

    /// `None` when there was no permit in time.
    pub(crate) async fn acquire(&self, client: IpAddr) -> Option<StreamPermit> {
        let client = client_subnet(client);
        let acquire = async {
            // In this order: a client that waits for its own streams holds no permit of all.
            let of_client = self.of_client(client).acquire_owned().await.ok()?;
            let of_all = Arc::clone(&self.all).acquire_owned().await.ok()?;
            let dialling = loop {
                match self.begin_dialling() {
                    Some(dialling) => break dialling,
                    None => tokio::time::sleep(POLL_INTERVAL).await,
                }
            };
            Some(StreamPermit {
                dialling: Some(dialling),
                _of_all: of_all,
                _of_client: of_client,
            })
        };
        tokio::time::timeout(MAX_WAIT, acquire).await.ok().flatten()
    }

    fn of_client(&self, client: IpAddr) -> Arc<Semaphore> {
        let mut per_client = self.per_client.lock();
        if let Some(share) = per_client.get(&client).and_then(Weak::upgrade) {
            return share;
        }
        per_client.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(self.limits.max_open.div_ceil(2)));
        per_client.insert(client, Arc::downgrade(&share));
        share
    }

    fn begin_dialling(&self) -> Option<Dialling> {
        let others = self.dialling.fetch_add(1, Relaxed);
        let dialling = Dialling(Arc::clone(&self.dialling));
        let in_use = descriptors::in_use().saturating_add(others as u64);
        (in_use < self.limits.max_descriptors).then_some(dialling)
    }
}

impl StreamPermit {
    /// Its descriptor is open, and counted as such from now on.
    pub(crate) fn opened(&mut self) {
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

    fn limiter(max_open: usize) -> StreamLimiter {
        StreamLimiter::new(StreamLimits {
            max_open,
            ..StreamLimits::default()
        })
    }

    fn client(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_with_half_of_all_streams_waits_for_its_own_and_others_do_not() {
        let limiter = limiter(8);
        let mut first = Vec::new();
        for _ in 0..4 {
            first.push(limiter.acquire(client(1)).await.unwrap());
        }
        let started = Instant::now();
        assert!(limiter.acquire(client(1)).await.is_none());
        assert_eq!(started.elapsed(), MAX_WAIT);
        let started = Instant::now();
        let other = limiter.acquire(client(2)).await.unwrap();
        assert!(started.elapsed().is_zero());

        let (again, ()) = tokio::join!(limiter.acquire(client(1)), async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            first.pop();
        });
        assert!(again.is_some());
        drop((first, again, other));
        assert_eq!(limiter.all.available_permits(), 8);
    }

    #[tokio::test(start_paused = true)]
    async fn there_are_never_more_streams_than_the_limit() {
        let limiter = limiter(4);
        let mut open = Vec::new();
        for last in 1..=4 {
            open.push(limiter.acquire(client(last)).await.unwrap());
        }
        assert!(limiter.acquire(client(5)).await.is_none());
        open.pop();
        assert!(limiter.acquire(client(5)).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn descriptors_that_others_use_are_not_available_to_streams() {
        let limited = |max_descriptors| {
            StreamLimiter::new(StreamLimits {
                max_open: 1000,
                max_descriptors,
            })
        };
        assert!(limited(0).acquire(client(1)).await.is_none());

        // However many arrive together, before any of them has a descriptor that could be counted.
        let limiter = limited(descriptors::in_use() + 50);
        let all = (1..=200)
            .cycle()
            .take(900)
            .map(|last| limiter.acquire(client(last)));
        let taken = futures_util::future::join_all(all).await;
        let granted = taken.iter().flatten().count();
        // Other tests of this process open and close some too.
        assert!(granted < 300, "{granted}");
        drop(taken);
        assert_eq!(limiter.dialling.load(Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn clients_without_streams_are_forgotten() {
        let limiter = limiter(8);
        for last in 1..=100 {
            drop(limiter.acquire(client(last)).await.unwrap());
        }
        assert_eq!(limiter.per_client.lock().len(), 1);
    }
}
