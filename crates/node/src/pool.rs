//! The warm pool: sandboxes that wait for a user, started, ready, owned by nobody, seen by nobody.
//!
//! A shelf per kind ([`WarmWish`]) is filled while that kind is in demand and emptied when it is
//! not, when memory or disk get short, and when its build is not the current one any more. A
//! member leaves its shelf under one lock, to a claim or to its end, so nobody gets it twice.
//!
//! A create that finds no ready member claims one that is still starting, if there is any of its
//! kind: what is done for it need not be done again. From the moment that its create is here, such
//! a member is the user's in memory (told, counted and ended as theirs, with their cpu), and on
//! disk when it has been handed over, like any other:
//!
//! ```text
//! making ──► starting ──► ready ──claim──► handed over ──► the user's
//!                │                              ▲
//!                └──claim──► the create waits ──┤ ready
//!                                               └ failed: it makes its own, under the same id
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
//! - `shelves`: who is ready, who is starting, who is claimed
//! - `pressure`: whether the machine can afford it
//! - `keeper`: the task that fills and empties
//! - `turn`: for how long one that is being made keeps others from it
//! - `hand_over`: from a waiting sandbox to the user's

mod config;
mod demand;
mod hand_over;
mod keeper;
mod pressure;
mod shelves;
mod turn;

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
use soulbox_runtime::WarmWish;
use soulbox_template::Template;
use soulbox_types::{EndReason, SandboxId};
use tokio::sync::Notify;

use crate::{LocalNode, entry::Entry};
use shelves::Shelves;

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
    shelves: Mutex<Shelves>,
    /// Set before the last look at who is there, and looked at before anybody is added.
    closed: AtomicBool,
    /// There is something to fill or to empty.
    changed: Notify,
    /// When a create last asked for one.
    last_claim: Mutex<Option<Instant>>,
    /// The machine's memory when it was last looked at.
    looked: Mutex<Option<(Instant, Option<Memory>)>>,
}

impl Pool {
    pub(crate) fn new(config: PoolConfig) -> Self {
        Self {
            shelves: Mutex::new(Shelves::new(&config)),
            config,
            closed: AtomicBool::new(false),
            changed: Notify::new(),
            last_claim: Mutex::new(None),
            looked: Mutex::new(None),
        }
    }

    pub(crate) fn is_off(&self) -> bool {
        self.config.is_off()
    }

    /// As of a moment ago: every claim asks, and the kernel goes through all block devices for an
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

    pub(crate) fn shelves(&self) -> parking_lot::MutexGuard<'_, Shelves> {
        self.shelves.lock()
    }

    /// For how long a create that has just asked for one goes first.
    pub(crate) fn calm_in(&self, now: Instant) -> Option<Duration> {
        let last = (*self.last_claim.lock())?;
        config::CALM.checked_sub(now.duration_since(last))
    }

    /// No create follows a claim.
    pub(crate) fn release(&self, id: &SandboxId) {
        if self.shelves().release(id) {
            self.changed.notify_one();
        }
    }

    /// One that waits, taken off its shelf to be ended.
    pub(crate) fn give_up_one(&self) -> Option<SandboxId> {
        self.shelves().give_up_one()
    }

    /// A sandbox has ended, whoever's it was.
    pub(crate) fn forget(&self, id: &SandboxId, reason: EndReason) {
        let mut shelves = self.shelves();
        if let Some(wish) = shelves.forget(id) {
            if reason == EndReason::Died {
                shelves.failed(&wish, Instant::now());
            }
            self.changed.notify_one();
        }
    }
}

impl LocalNode {
    pub fn pool_stats(&self) -> PoolStats {
        self.pool().shelves().stats()
    }

    /// Ends the waiting sandboxes of a build that new sandboxes are not made of any more.
    pub(crate) fn retire_build(&self, build: &str) {
        self.pool().shelves().retire(build);
        self.pool().changed.notify_one();
    }

    /// Ends all waiting sandboxes and makes no more: for when the server stops.
    pub async fn close_pool(&self) {
        let Ok(node) = self.owned() else { return };
        self.pool().closed.store(true, Ordering::SeqCst);
        self.pool().shelves().close();
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

    pub(crate) fn claim(&self, wish: &WarmWish) -> Option<SandboxId> {
        let pool = self.pool();
        if pool.is_off() {
            return None;
        }
        let current = self.current_build(wish);
        let mut shelves = pool.shelves();
        shelves.note_demand(wish, Instant::now());
        let claimed = current.and_then(|template| {
            let entries = self.entries().lock();
            let nobodys = |id: &SandboxId| entries.get(id).filter(|e| e.is_nobodys());
            shelves.claim(wish, &template.build_id, Instant::now(), |id| {
                nobodys(id).map(Entry::state)
            })
        });
        *pool.last_claim.lock() = Some(Instant::now());
        pool.changed.notify_one();
        claimed
    }

    /// What a new sandbox of this kind would be made of.
    pub(crate) fn current_build(&self, wish: &WarmWish) -> Option<Arc<Template>> {
        match &wish.build {
            Some(build) => self.templates().build(build),
            None => self.templates().own(&wish.template),
        }
    }
}
