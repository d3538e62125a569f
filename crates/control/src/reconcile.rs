//! After a start: rows are intent, the node is the truth.
//!
//! | row | on the node | then |
//! |---|---|---|
//! | live | running or paused | adopted |
//! | live | absent | the row ends as lost |
//! | none | running or paused, of a tenant we know | recorded and adopted: its owner may be using it |
//! | ended, or of an unknown tenant | running | destroyed |

use std::collections::HashMap;

use soulbox_runtime::SandboxStatus;
use soulbox_store::{EndRow, SandboxRow};
use soulbox_types::{EndReason, SandboxId, SandboxSpec, SandboxState, UnixMillis};

use crate::{Access, Control, Result, create::row_of, idempotency::StoredAnswer};

impl Control {
    pub(crate) async fn reconcile(&self) -> Result<()> {
        let live = self.store.live_sandboxes().await?;
        let mut live: HashMap<SandboxId, SandboxRow> =
            live.into_iter().map(|row| (row.id.clone(), row)).collect();
        for status in self.node.list() {
            let row = live.remove(&status.spec.id);
            self.reconcile_running(&status, row).await?;
        }
        for id in live.into_keys() {
            let end = EndRow::now(
                EndReason::Lost,
                "it was not there any more when the server started",
            );
            tracing::warn!(sandbox_id = %id, "sandbox is lost");
            self.store.end_sandbox(&id, &end).await?;
        }
        self.settle_idempotency().await
    }

    async fn reconcile_running(
        &self,
        status: &SandboxStatus,
        row: Option<SandboxRow>,
    ) -> Result<()> {
        let spec = &status.spec;
        let usable = matches!(status.state, SandboxState::Running | SandboxState::Paused);
        let ours = if let Some(row) = row {
            usable && row.tenant == spec.tenant
        } else {
            usable && self.keys.knows(&spec.tenant) && self.record_stray(status).await?
        };
        if ours {
            self.registry
                .adopt(&spec.id, &spec.tenant, self.rested_at(spec));
            return Ok(());
        }
        tracing::warn!(sandbox_id = %spec.id, state = ?status.state, "destroying a stray sandbox");
        if let Err(error) = self.destroy_on_node(&spec.id, EndReason::Lost).await {
            tracing::error!(sandbox_id = %spec.id, %error, "could not destroy a stray sandbox");
        }
        let end = EndRow::now(
            EndReason::Lost,
            "it was half made or unknown when the server started",
        );
        Ok(self.store.end_sandbox(&spec.id, &end).await?)
    }

    /// One that is older than a life may last has rested in between; when is not recorded.
    fn rested_at(&self, spec: &SandboxSpec) -> Option<UnixMillis> {
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
