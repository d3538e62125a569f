//! So many builds at a time, and a turn for every tenant: who has fewer under way goes first.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use soulbox_types::TenantId;
use tokio::sync::oneshot;

#[derive(Debug)]
pub(crate) struct Queue {
    limit: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    taken: HashMap<TenantId, usize>,
    waiting: VecDeque<(TenantId, oneshot::Sender<Permit>)>,
}

impl Queue {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            inner: Mutex::default(),
        }
    }

    /// Whether somebody who comes now has to wait.
    pub(crate) fn is_full(&self) -> bool {
        self.inner.lock().all_taken() >= self.limit
    }

    /// How many are under way, and how many wait.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let inner = self.inner.lock();
        let waiting = inner.waiting.iter();
        let waiting = waiting.filter(|(_, sender)| !sender.is_closed()).count();
        (inner.all_taken(), waiting)
    }

    /// Waits for a permit. Whoever stops waiting leaves the queue.
    pub(crate) async fn enter(self: &Arc<Self>, tenant: &TenantId) -> Permit {
        let (sender, receiver) = oneshot::channel();
        {
            let mut inner = self.inner.lock();
            inner.waiting.push_back((tenant.clone(), sender));
        }
        self.serve();
        match receiver.await {
            Ok(permit) => permit,
            // The sender is in the queue, which this future keeps alive.
            Err(_) => std::future::pending().await,
        }
    }

    fn serve(self: &Arc<Self>) {
        loop {
            let (tenant, sender) = {
                let mut inner = self.inner.lock();
                inner.waiting.retain(|(_, sender)| !sender.is_closed());
                if inner.all_taken() >= self.limit {
                    return;
                }
                let Some(next) = inner.next() else { return };
                *inner.taken.entry(next.0.clone()).or_default() += 1;
                next
            };
            let permit = Permit {
                queue: Arc::clone(self),
                tenant,
            };
            // One that gave up just now gives the permit back by dropping it, and that serves the
            // next: this loop would only find the same.
            drop(sender.send(permit));
        }
    }
}

impl Inner {
    fn all_taken(&self) -> usize {
        self.taken.values().sum()
    }

    fn next(&mut self) -> Option<(TenantId, oneshot::Sender<Permit>)> {
        let taken = |tenant: &TenantId| self.taken.get(tenant).copied().unwrap_or_default();
        let first = (0..self.waiting.len()).min_by_key(|&at| taken(&self.waiting[at].0))?;
        self.waiting.remove(first)
    }
}

/// To build; given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    queue: Arc<Queue>,
    tenant: TenantId,
}

impl Drop for Permit {
    fn drop(&mut self) {
        {
            let mut inner = self.queue.inner.lock();
            if let Some(count) = inner.taken.get_mut(&self.tenant) {
                *count -= 1;
                if *count == 0 {
                    inner.taken.remove(&self.tenant);
                }
            }
        }
        self.queue.serve();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, future::BoxFuture};

    use super::*;

    fn tenant(digit: char) -> TenantId {
        let text: String = "01890a5d-ac96-774b-bcce-b302099a805".to_owned() + &digit.to_string();
        text.parse().unwrap()
    }

    /// Polled once, so that it stands in the queue.
    fn wait(queue: &Arc<Queue>, digit: char) -> BoxFuture<'static, Permit> {
        let (queue, tenant) = (Arc::clone(queue), tenant(digit));
        let mut waiting = async move { queue.enter(&tenant).await }.boxed();
        assert!((&mut waiting).now_or_never().is_none());
        waiting
    }

    #[tokio::test]
    async fn who_has_fewer_under_way_goes_first_and_then_who_came_first() {
        let queue = Arc::new(Queue::new(2));
        let (one, two) = (
            queue.enter(&tenant('1')).await,
            queue.enter(&tenant('1')).await,
        );
        assert!(queue.is_full());
        let (mut third, mut other) = (wait(&queue, '1'), wait(&queue, '2'));
        let mut fourth = wait(&queue, '1');
        drop(one);
        let other = (&mut other).now_or_never().unwrap();
        assert!((&mut third).now_or_never().is_none());
        drop(two);
        let third = (&mut third).now_or_never().unwrap();
        assert!((&mut fourth).now_or_never().is_none());
        drop((other, third));
        assert!(fourth.now_or_never().is_some());
        assert!(!queue.is_full());
    }

    #[tokio::test]
    async fn whoever_stops_waiting_costs_no_permit() {
        let queue = Arc::new(Queue::new(1));
        let held = queue.enter(&tenant('1')).await;
        let (gone, mut next) = (wait(&queue, '2'), wait(&queue, '3'));
        drop(gone);
        drop(held);
        assert!((&mut next).now_or_never().is_some());
        assert!(!queue.is_full());
    }
}
