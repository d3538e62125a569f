//! After a start: rows are intent, the node is the truth.
//!
//! | row | on the node | then |
//! |---|---|---|
//! | live | running or paused | adopted |
//! | live | ended, and the node knows why | the row ends for that reason |
//! | live | there, but broken | stays live: it can be recovered; told by an event |
//! | live | absent | the row ends as lost |
//! | none | running or paused, of a tenant we know | recorded and adopted: its owner may be using it |
//! | ended, or of an unknown tenant | running | destroyed |
//!
//! Every end that its owner may not have heard of makes the event that it would have made while a
//! server was watching. One that never came to be makes none: nobody was told of it. Likewise the
//! event of a creation, which is written after its client is answered, is made up for.

use std::{collections::HashMap, sync::Arc, time::Duration};

use soulbox_runtime::{Broken, End, SandboxStatus};
use soulbox_store::{EndRow, EventFilter, SandboxRow};
use soulbox_types::{Chain, EndReason, SandboxId, SandboxSpec, SandboxState, UnixMillis};

use crate::{
    Access, Control, Result, create::row_of, idempotency::StoredAnswer, journal::RETENTION,
};

/// From an end to its record, while a server runs.
const RECORDED_WITHIN: Duration = Duration::from_mins(2);
/// From when a sandbox is said to be created to when that is noted, at most.
const NOTED_WITHIN: Duration = Duration::from_mins(1);

impl Control {
    pub(crate) async fn reconcile(self: &Arc<Self>) -> Result<()> {
        let told_until = self.told_until().await?;
        let live = self.store.live_sandboxes().await?;
        let mut live: HashMap<SandboxId, SandboxRow> =
            live.into_iter().map(|row| (row.id.clone(), row)).collect();
        for status in self.node.list() {
            let row = live.remove(&status.spec.id);
            self.reconcile_running(&status, row, told_until).await?;
        }
        for end in self.node.unrecorded_ends().await {
            // One that was adopted a moment ago: the node tells us of its end.
            if self.registry.phase(&end.spec.id).is_some() {
                continue;
            }
            live.remove(&end.spec.id);
            self.reconcile_ended(&end, told_until).await?;
        }
        for broken in self.node.broken() {
            let row = live.remove(&broken.id);
            self.reconcile_broken(&broken, row).await?;
        }
        for row in live.into_values() {
            self.reconcile_absent(row).await?;
        }
        self.settle_idempotency().await
    }

    pub(crate) async fn reconcile_running(
        self: &Arc<Self>,
        status: &SandboxStatus,
        row: Option<SandboxRow>,
        told_until: UnixMillis,
    ) -> Result<()> {
        let spec = &status.spec;
        let usable = matches!(status.state, SandboxState::Running | SandboxState::Paused);
        let ours = match &row {
            Some(row) => usable && row.tenant == spec.tenant,
            None => usable && self.keys.knows(&spec.tenant) && self.record_stray(status).await?,
        };
        if ours {
            self.registry
                .adopt(&spec.id, &spec.tenant, self.paused_at(spec));
            // Now, not after all of them: what ends meanwhile has its event too.
            self.learn(spec);
            return self.emit_creation(spec, told_until).await;
        }
        tracing::warn!(sandbox_id = %spec.id, state = ?status.state, "destroying a stray sandbox");
        if let Err(error) = self.destroy_on_node(&spec.id, EndReason::Lost).await {
            tracing::error!(sandbox_id = %spec.id, error = %Chain(&error), "could not destroy a stray sandbox");
        }
        let end = EndRow::now(
            EndReason::Lost,
            "it was half made or unknown when the server started",
        );
        self.store.end_sandbox(&spec.id, &end).await?;
        self.forget_end_later(&spec.id);
        Ok(())
    }

    async fn reconcile_ended(self: &Arc<Self>, end: &End, told_until: UnixMillis) -> Result<()> {
        let id = &end.spec.id;
        // Without a row nobody was told of it.
        if let Some(row) = self.store.sandbox(id).await? {
            if row.end.is_none() {
                let reason = end.reason.as_str();
                tracing::info!(sandbox_id = %id, reason, end.detail, "sandbox has ended");
                self.store.end_sandbox(id, &end_row(end)).await?;
            }
            // Whoever recorded it has noted its event, which may still wait to be written: it must not
            // be taken for missing.
            if row.end.is_some() && !self.journal.flush().await {
                return Ok(());
            }
            let reason = row.end.as_ref().map_or(end.reason, |end| end.reason);
            if reason != EndReason::CreateFailed && !self.has_event(&row, "killed").await? {
                self.emit_creation(&end.spec, told_until).await?;
                self.note_ended_before(row, Some(&end.spec), reason);
            }
        }
        self.forget_end_later(id);
        Ok(())
    }

    /// Ends that should have been recorded by now: nobody is at it any more.
    pub(crate) async fn record_left_ends(self: &Arc<Self>) -> Result<()> {
        let mut left = self.node.unrecorded_ends().await;
        left.retain(|end| {
            let long_ago = end.at.plus(RECORDED_WITHIN) <= UnixMillis::now();
            long_ago && self.registry.phase(&end.spec.id).is_none()
        });
        // An event that still waits to be written must not be taken for missing.
        if left.is_empty() || !self.journal.flush().await {
            return Ok(());
        }
        let told_until = self.told_until().await?;
        for end in left {
            self.reconcile_ended(&end, told_until).await?;
        }
        Ok(())
    }

    /// What nobody was told of goes, and what is on record as ended by its owner or its deadline.
    /// All others stay until somebody decides.
    async fn reconcile_broken(&self, broken: &Broken, live: Option<SandboxRow>) -> Result<()> {
        let row = match live {
            Some(row) => Some(row),
            None => self.store.sandbox(&broken.id).await?,
        };
        let over = |end: &EndRow| matches!(end.reason, EndReason::Killed | EndReason::Expired);
        let unwanted = match &row {
            None => broken.unsure,
            Some(row) => row.end.as_ref().is_some_and(over),
        };
        if unwanted {
            tracing::info!(sandbox_id = %broken.id, "removing a broken sandbox that is nobody's");
            if let Err(error) = self.node.discard(&broken.id).await {
                tracing::warn!(sandbox_id = %broken.id, error = %Chain(&error), "a broken sandbox stays");
            }
            return Ok(());
        }
        let row = match (row, &broken.spec) {
            (Some(row), _) => row,
            (None, Some(spec)) if self.keys.knows(&spec.tenant) => {
                // As for one that runs: its owner may ask for it.
                let row = row_of(spec);
                self.store.insert_sandbox(&row).await?;
                row
            }
            (None, _) => return Ok(()),
        };
        if row.end.is_none() && !self.has_event(&row, "broken").await? {
            self.note_broken(row, broken.spec.as_deref(), &broken.reason);
        }
        Ok(())
    }

    /// What was made has left the node only after its end was recorded: either it was not made yet
    /// when the last server died, or somebody else has removed its files.
    async fn reconcile_absent(&self, row: SandboxRow) -> Result<()> {
        let end = EndRow::now(
            EndReason::Lost,
            "nothing of it was there any more when the server started",
        );
        tracing::warn!(sandbox_id = %row.id, "sandbox is lost");
        self.store.end_sandbox(&row.id, &end).await?;
        let was_told = is_forgotten(row.created_at) || self.has_event(&row, "created").await?;
        if was_told && !self.has_event(&row, "killed").await? {
            self.note_ended_before(row, None, EndReason::Lost);
        }
        Ok(())
    }

    /// Events are written in their order: older ones are on record, or forgotten by now.
    async fn told_until(&self) -> Result<UnixMillis> {
        let latest = self.store.latest_event().await?;
        Ok(latest.unwrap_or(UnixMillis(0)))
    }

    async fn emit_creation(&self, spec: &SandboxSpec, told_until: UnixMillis) -> Result<()> {
        let described =
            spec.created_at.plus(NOTED_WITHIN) < told_until || is_forgotten(spec.created_at);
        if !described && !self.has_event(&row_of(spec), "created").await? {
            self.note_created_before(spec);
        }
        Ok(())
    }

    async fn has_event(&self, row: &SandboxRow, kind: &str) -> Result<bool> {
        let filter = EventFilter {
            sandbox: Some(row.id.clone()),
            kinds: vec![kind.to_owned()],
            limit: 1,
            ..EventFilter::default()
        };
        Ok(!self.store.events(&row.tenant, &filter).await?.is_empty())
    }

    /// One that is older than a life may last was paused in between; when is not recorded.
    fn paused_at(&self, spec: &SandboxSpec) -> Option<UnixMillis> {
        let now = UnixMillis::now();
        (spec.created_at.plus(self.config.max_timeout) <= now).then_some(now)
    }

    /// `false` for one whose row says that it ended: it should not run.
    async fn record_stray(&self, status: &SandboxStatus) -> Result<bool> {
        let unknown = self.store.sandbox(&status.spec.id).await?.is_none();
        if unknown {
            self.store.insert_sandbox(&row_of(&status.spec)).await?;
        }
        Ok(unknown)
    }

    /// A request that was under way when the server stopped has succeeded if its sandbox is here.
    async fn settle_idempotency(&self) -> Result<()> {
        for id in self.store.open_idempotency().await? {
            if self.registry.phase(&id).is_some()
                && let Some(status) = self.node.get(&id)
            {
                let answer = StoredAnswer::of(&Access::from(&status))?;
                self.store.complete_idempotency(&id, &answer).await?;
            }
        }
        Ok(())
    }
}

/// Whatever happened then, no event tells of it any more.
fn is_forgotten(at: UnixMillis) -> bool {
    at.plus(RETENTION) <= UnixMillis::now()
}

fn end_row(end: &End) -> EndRow {
    EndRow {
        at: end.at,
        ..EndRow::now(end.reason, &end.detail)
    }
}
