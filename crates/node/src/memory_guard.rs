//! Keeps sandboxes from taking memory that no limit of theirs covers.
//!
//! What waits in sockets is the kernel's memory, and most of it is charged to no control group: one
//! sandbox could fill the machine with answers that it never reads. What the machine has in use and
//! nobody is charged for is cheap to see, so that is watched all the time; whose it is is asked only
//! when it has grown. Whoever holds most of it is ended, with the reason.
//! `docs/decisions/0005-memory-charged-to-nobody.md` says why not otherwise.
//!
//! - `gauge`: what the kernel uses; `watch`: what follows from it

mod gauge;
mod watch;

pub use gauge::KernelMemory;

use std::{
    collections::HashMap,
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use soulbox_runtime::{Error, SocketMemory};
use soulbox_types::{EndReason, SandboxId, SandboxState, Tier};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout_at},
};

use self::watch::{Alert, Holders, Watch, step};
use crate::{LocalNode, local::blocking};

/// A look takes some tens of microseconds, and a program can hoard gigabytes in a second.
const CALM: Duration = Duration::from_millis(200);
const NEAR: Duration = Duration::from_millis(50);
/// Sandboxes that are looked at at once. Each takes about a millisecond.
const AT_ONCE: usize = 4;
/// For all of them. More than the longest look at one takes.
const PASS_LIMIT: Duration = Duration::from_secs(3);
/// Whoever has more than so many sockets, and so slow ones that they cannot be counted, does it on
/// purpose: what it holds must be taken to be a step.
const MOST_UNCOUNTED: u64 = 50_000;

impl LocalNode {
    /// How many sandboxes were ended since they held too much of the kernel's memory.
    pub fn evictions(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// What each sandbox holds, also the paused ones; one that has more than is left for all of them
    /// is ended as soon as that is seen.
    async fn find_holders(self: &Arc<Self>, most: u64) -> Holders {
        let mut holders = Holders {
            living: HashMap::new(),
            dying: self.evictions_under_way.lock().clone(),
            complete: true,
        };
        let give_up = Instant::now() + PASS_LIMIT;
        // Each map has an order of its own: whoever was not asked in time may be the first next time.
        let waiting: HashMap<SandboxId, Tier> = {
            let entries = self.entries().lock();
            let alive = entries.values().filter(|entry| {
                entry.state() != SandboxState::Destroying && !holders.dying.contains_key(entry.id())
            });
            alive.map(|e| (e.id().clone(), e.spec.tier)).collect()
        };
        let (mut waiting, mut looks) = (waiting.into_iter(), JoinSet::new());
        loop {
            while looks.len() < AT_ONCE
                && let Some((id, tier)) = waiting.next()
            {
                if let Ok(runtime) = self.runtime(tier) {
                    looks.spawn(async move {
                        let held = runtime.socket_memory(&id).await;
                        (id, held)
                    });
                }
            }
            let Ok(look) = timeout_at(give_up, looks.join_next()).await else {
                tracing::warn!(
                    "there was no time to ask every sandbox what it holds of the kernel's memory"
                );
                holders.complete = false;
                return holders;
            };
            match look {
                None => return holders,
                Some(Ok((id, Ok(held)))) => {
                    holders.complete &= held.complete;
                    if held.bytes >= most {
                        self.evict(&id, held.bytes, held_too_much(held.bytes));
                        holders.dying.insert(id, held.bytes);
                    } else if !held.complete && held.sockets > MOST_UNCOUNTED {
                        self.evict(&id, most, has_too_many(&held));
                        holders.dying.insert(id, most);
                    } else {
                        holders.living.insert(id, held.bytes);
                    }
                }
                // It has ended meanwhile, or has no sockets of this kernel.
                Some(Ok((_, Err(Error::SandboxNotFound(_) | Error::Unsupported { .. })))) => {}
                Some(Ok((id, Err(error)))) => {
                    holders.complete = false;
                    tracing::warn!(sandbox_id = %id, %error, "what it holds of the kernel's memory is not known");
                }
                Some(Err(error)) => {
                    holders.complete = false;
                    tracing::error!(%error, "a look at a sandbox failed");
                }
            }
        }
    }

    fn evict(self: &Arc<Self>, id: &SandboxId, bytes: u64, detail: String) {
        tracing::warn!(sandbox_id = %id, held_mib = bytes >> 20, "ending it: {detail}");
        self.evicted.fetch_add(1, Ordering::Relaxed);
        self.evictions_under_way.lock().insert(id.clone(), bytes);
        let (node, id) = (Arc::clone(self), id.clone());
        // Beside the guard, which has others to look at.
        tokio::spawn(async move {
            node.finish(&id, EndReason::Evicted, &detail).await;
            node.evictions_under_way.lock().remove(&id);
        });
    }
}

fn held_too_much(bytes: u64) -> String {
    let held_mib = bytes >> 20;
    format!(
        "it held {held_mib} MiB of the server's memory in network data that nobody read, which is \
         outside of its memory limit"
    )
}

fn has_too_many(held: &SocketMemory) -> String {
    let (sockets, held_mib) = (held.sockets, held.bytes >> 20);
    format!(
        "it had {sockets} sockets, too many to find out how much of the server's memory they held \
         outside of its memory limit ({held_mib} MiB in those that were looked at)"
    )
}

pub(crate) async fn guard(node: Weak<LocalNode>) {
    let mut watch = Watch::default();
    let mut wait = CALM;
    loop {
        tokio::time::sleep(wait).await;
        let Some(node) = node.upgrade() else { return };
        let gauge = Arc::clone(node.gauge());
        let Ok(Some(memory)) = blocking(move || Ok(gauge.kernel_memory())).await else {
            wait = CALM;
            continue;
        };
        wait = match watch.observe(&memory, Instant::now()) {
            Alert::None => CALM,
            Alert::Near => NEAR,
            Alert::Look => {
                let most = step(memory.total);
                let began = Instant::now();
                let holders = node.find_holders(most).await;
                for (id, bytes) in watch.judge(&memory, Instant::now(), &holders) {
                    node.evict(&id, bytes, held_too_much(bytes));
                }
                // What takes long and tells little may not take all of the time.
                if holders.complete {
                    NEAR
                } else {
                    NEAR.max(began.elapsed())
                }
            }
        };
    }
}
