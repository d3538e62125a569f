//! The warm pool: sandboxes that wait for a user, started, ready, owned by nobody, seen by nobody.
//!
//! Those of a kind ([`PoolKey`]) are made while that kind is in demand and ended when it is not,
//! when memory or disk get short, and when its build is not the current one any more. A member
//! leaves the pool under one lock, to a reservation or to its end, so nobody gets it twice.
//!
//! A create that finds no ready member reserves one that is still starting, if there is any of its
//! kind: what is done for it need not be done again. From the moment that its create is here, such
//! a member is the user's in memory (told, counted and ended as theirs, with their cpu), and on
//! disk when it has been handed over, like any other:
//!
//! ```text
//! making ──► starting ──► ready ──reserve──► handed over ──► the user's
//!                │                                ▲
//!                └──reserve──► the create waits ──┤ ready
//!                                                 └ failed: it makes its own, under the same id
//! ```
//!
//! Making members yields to whoever waits: see [`soulbox_runtime::Refill`] for their cpu, and
//! `keeper` for when they begin.
//!
//! What is on disk decides after a crash ([`crate::folder`]):
//!
//! | `spec.json` says | `warm.json` | means |
//! |---|---|---|
//! | warm | no | being made, for the pool or for a create that waits for it: destroyed |
//! | warm | yes | waits, or is promised to a create that has a row already: destroyed |
//! | user | yes | being handed over: destroyed, nobody was answered |
//! | user | no | the user's |
//!
//! # Layout
//! - `config`: how large it may get
//! - `demand`: how many of a kind are worth keeping
//! - `warm`: who is ready, who is starting, who is reserved
//! - `pressure`: whether the machine can afford it
//! - `keeper`: the task that fills and empties
//! - `refill_permit`: for how long one that is being made keeps others from it
//! - `hand_over`: from a waiting sandbox to the user's

mod config;
mod demand;
mod hand_over;
mod keeper;
mod pressure;
mod refill_permit;
mod warm;

pub use config::PoolConfig;
pub(crate) use keeper::keep;
pub(crate) use pressure::Memory;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use soulbox_runtime::PoolKey;
use soulbox_template::Template;
use soulbox_types::{EndReason, SandboxId};
use tokio::sync::Notify;

use crate::{LocalNode, entry::Entry};
use warm::WarmPool;

/// For operators: how the pool does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStats {
    pub ready: usize,
    pub making: usize,
    /// Creates that were served from it, with one that was ready or starting, and those that could
    /// not be.
    pub hits: u64,
    pub misses: u64,
}

#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) config: PoolConfig,
    /// Locked before the node's entries where both are needed, and never across an await.
    warm: Mutex<WarmPool>,
    /// Set before the last look at who is there, and looked at before anybody is added.
    closed: AtomicBool,
    /// There is something to fill or to empty.
    changed: Notify,
    /// When a create last asked for one.
    last_request: Mutex<Option<Instant>>,
    /// The machine's memory when it was last looked at.
    looked: Mutex<Option<(Instant, Option<Memory>)>>,
}

impl Pool {
    pub(crate) fn new(config: PoolConfig) -> Self {
        Self {
            warm: Mutex::new(WarmPool::new(&config)),
            config,
            closed: AtomicBool::new(false),
            changed: Notify::new(),
            last_request: Mutex::new(None),
            looked: Mutex::new(None),
        }
    }

    pub(crate) fn is_off(&self) -> bool {
        self.config.is_off()
    }

    /// As of a moment ago: every request asks, and the kernel goes through all block devices for an
    /// answer. Blocking.
    fn memory(&self) -> Option<Memory> {
        let mut looked = self.looked.lock();
        match *looked {
            Some((at, memory)) if at.elapsed() < config::MEMORY_IS_FRESH => memory,
            _ => {
                let memory = Memory::read(&self.config.meminfo);
                *looked = Some((Instant::now(), memory));
                memory
            }
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    pub(crate) fn warm(&self) -> parking_lot::MutexGuard<'_, WarmPool> {
        self.warm.lock()
    }

    /// For how long a create that has just asked for one goes first.
    pub(crate) fn calm_in(&self, now: Instant) -> Option<Duration> {
        let last = (*self.last_request.lock())?;
        config::CALM.checked_sub(now.duration_since(last))
    }

    /// No create follows a reservation.
    pub(crate) fn release(&self, id: &SandboxId) {
        if self.warm().release(id) {
            self.changed.notify_one();
        }
    }

    /// One that waits, taken out to be ended.
    pub(crate) fn give_up_one(&self) -> Option<SandboxId> {
        self.warm().give_up_one()
    }

    /// A sandbox has ended, whoever's it was.
    pub(crate) fn forget(&self, id: &SandboxId, reason: EndReason) {
        let mut warm = self.warm();
        if let Some(key) = warm.forget(id) {
            if matches!(reason, EndReason::Died | EndReason::Evicted) {
                warm.failed(&key, Instant::now());
            }
            self.changed.notify_one();
        }
    }
}

impl LocalNode {
    pub fn pool_stats(&self) -> PoolStats {
        self.pool().warm().stats()
    }

    /// Ends the waiting sandboxes of a build that new sandboxes are not made of any more.
    pub(crate) fn retire_build(&self, build: &str) {
        self.pool().warm().retire(build);
        self.pool().changed.notify_one();
    }

    /// Ends all waiting sandboxes and makes no more: for when the server stops.
    pub async fn close_pool(&self) {
        let Ok(node) = self.owned() else { return };
        self.pool().closed.store(true, Ordering::SeqCst);
        self.pool().warm().close();
        let members: Vec<_> = {
            let entries = self.entries().lock();
            let waiting = entries.values().filter(|entry| entry.is_nobodys());
            waiting
                .map(|entry| (entry.id().clone(), entry.gone.subscribe()))
                .collect()
        };
        let mut ending = tokio::task::JoinSet::new();
        for (id, mut gone) in members {
            let node = Arc::clone(&node);
            ending.spawn(async move {
                node.finish(&id, EndReason::Killed, "the server stops")
                    .await;
                // Somebody else may have begun its end, and still be at it. The sender goes with
                // the entry, which is the last thing to go.
                let _gone = gone.wait_for(|gone| *gone).await;
            });
        }
        let all = async { while ending.join_next().await.is_some() {} };
        if tokio::time::timeout(config::CLOSE_LIMIT, all)
            .await
            .is_err()
        {
            tracing::warn!("waiting sandboxes are left; the next start ends them");
        }
    }

    pub(crate) fn reserve_warm(&self, key: &PoolKey) -> Option<SandboxId> {
        let pool = self.pool();
        if pool.is_off() {
            return None;
        }
        let current = self.current_build(key);
        let mut warm = pool.warm();
        warm.note_demand(key, Instant::now());
        let reserved = current.and_then(|template| {
            let entries = self.entries().lock();
            let nobodys = |id: &SandboxId| entries.get(id).filter(|e| e.is_nobodys());
            warm.reserve(key, &template.build_id, Instant::now(), |id| {
                nobodys(id).map(Entry::state)
            })
        });
        *pool.last_request.lock() = Some(Instant::now());
        pool.changed.notify_one();
        reserved
    }

    /// What a new sandbox of this kind would be made of.
    pub(crate) fn current_build(&self, key: &PoolKey) -> Option<Arc<Template>> {
        match &key.build {
            Some(build) => self.templates().build(build),
            None => self.templates().own(&key.template),
        }
    }
}
