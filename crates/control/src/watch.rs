//! Follows the node while the server runs, and keeps the store small.

use std::{
    collections::HashSet,
    sync::{Arc, Weak},
    time::Duration,
};

use soulbox_runtime::NodeEvent;
use soulbox_store::EndRow;
use soulbox_types::{Chain, EndReason, SandboxId, UnixMillis};
use tokio::{
    sync::broadcast::{Receiver, error::RecvError},
    time::MissedTickBehavior,
};
use tokio_util::sync::CancellationToken;

use crate::{
    Control, Result,
    idempotency::forget_before,
    journal::{MOST_EVENTS, RETENTION},
};

/// How long a key that was deleted in the data folder may still work.
const TICK: Duration = Duration::from_secs(2);
const TICKS_PER_RESYNC: u64 = 5;
const TICKS_PER_PRUNE: u64 = 30;
const TICKS_PER_LOOK_AGAIN: u64 = 30;
const TICKS_PER_COLLECT: u64 = 1800;
/// Not right after the start: builds that go on need what is there.
const FIRST_COLLECT: u64 = 150;
/// How long one can ask why a sandbox ended.
const HISTORY: Duration = Duration::from_hours(30 * 24);

impl Control {
    pub(crate) fn follow(self: &Arc<Self>, events: Receiver<NodeEvent>, stop: &CancellationToken) {
        let (control, stopped) = (Arc::downgrade(self), stop.clone());
        tokio::spawn(async move {
            stopped
                .run_until_cancelled(follow_events(control, events))
                .await;
        });
        let (control, stopped) = (Arc::downgrade(self), stop.clone());
        tokio::spawn(async move {
            stopped.run_until_cancelled(maintain(control)).await;
        });
    }

    async fn record_end(self: &Arc<Self>, id: &SandboxId, reason: EndReason, detail: &str) {
        if !self.registry.ended(id) {
            return;
        }
        tracing::info!(sandbox_id = %id, reason = reason.as_str(), detail, "sandbox ended");
        self.note_ended(id, reason);
        let end = EndRow::now(reason, detail);
        match self.store.end_sandbox(id, &end).await {
            Ok(()) => self.forget_end_later(id),
            // The node keeps why; see `record_left_ends`.
            Err(error) => {
                tracing::error!(sandbox_id = %id, error = %Chain(&error), "could not record the end of a sandbox");
            }
        }
        self.sweep_later();
    }

    /// Finds ends whose events were missed. One that is missing for the first time may have its
    /// event still on the way, and that knows the reason.
    async fn resync(self: &Arc<Self>, missing_before: &HashSet<SandboxId>) -> HashSet<SandboxId> {
        let mut missing: HashSet<_> = self.registry.running().into_iter().collect();
        missing.retain(|id| self.node.get(id).is_none());
        let missed: Vec<_> = missing.intersection(missing_before).collect();
        if missed.is_empty() {
            return missing;
        }
        let ends = self.node.unrecorded_ends().await;
        for id in missed {
            let known = ends.iter().find(|end| end.spec.id == *id);
            let (reason, detail) = known.map_or(
                (EndReason::Died, "the node does not have it any more"),
                |end| (end.reason, end.detail.as_str()),
            );
            self.record_end(id, reason, detail).await;
        }
        missing
    }

    async fn prune(self: &Arc<Self>) -> Result<()> {
        self.record_left_ends().await?;
        let now = UnixMillis::now();
        let old = u64::try_from(HISTORY.as_millis()).unwrap_or(u64::MAX);
        self.flush_key_use().await?;
        self.store.prune_idempotency(forget_before(now)).await?;
        let kept = u64::try_from(RETENTION.as_millis()).unwrap_or(u64::MAX);
        let before = UnixMillis(now.0.saturating_sub(kept));
        self.store.prune_events(before, MOST_EVENTS).await?;
        self.store
            .prune_sandboxes(UnixMillis(now.0.saturating_sub(old)))
            .await?;
        Ok(())
    }
}

async fn follow_events(control: Weak<Control>, mut events: Receiver<NodeEvent>) {
    loop {
        let event = events.recv().await;
        let Some(control) = control.upgrade() else {
            return;
        };
        match event {
            Ok(NodeEvent::Ended { id, reason, detail }) => {
                control.record_end(&id, reason, &detail).await;
            }
            Ok(NodeEvent::Paused { id }) => {
                control.registry.set_paused(&id);
                // It may be awake again, and both noted.
                if control.node.paused(&id).is_some() {
                    control.note_paused(&id);
                }
            }
            Ok(NodeEvent::OutOfMemory {
                id,
                killed,
                memory_mib,
            }) => control.note_out_of_memory(&id, killed, memory_mib),
            // Their ends are found by the next two looks at the node.
            Err(RecvError::Lagged(missed)) => tracing::warn!(missed, "node events were missed"),
            Err(RecvError::Closed) => return,
        }
    }
}

async fn maintain(control: Weak<Control>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut missing = HashSet::new();
    for tick in 0_u64.. {
        ticks.tick().await;
        let Some(control) = control.upgrade() else {
            return;
        };
        // The server ends: what it has to write, `drain` writes, and then the store is closed.
        if control.is_draining() {
            return;
        }
        if let Err(error) = control.sync_keys().await {
            tracing::warn!(error = %Chain(&error), "could not look for changed API keys");
        }
        control.notice_woken();
        if tick.is_multiple_of(TICKS_PER_RESYNC) {
            missing = control.resync(&missing).await;
            control.sweep_later();
        }
        // Not right after the start, which has just looked.
        if tick > 0 && tick.is_multiple_of(TICKS_PER_LOOK_AGAIN) {
            control.look_again_later();
        }
        if tick % TICKS_PER_COLLECT == FIRST_COLLECT {
            control.collect_later();
        }
        if tick.is_multiple_of(TICKS_PER_PRUNE)
            && let Err(error) = control.prune().await
        {
            tracing::warn!(error = %Chain(&error), "could not tidy the store");
        }
    }
}
