//! Ending a sandbox.

use std::{sync::Arc, time::Duration};

use soulbox_runtime::Error as NodeError;
use soulbox_store::EndRow;
use soulbox_types::{Chain, EndReason, SandboxId};
use tracing::Instrument;

use crate::{Control, Error, Result, Tenant, registry::Phase, view::Lookup};

const DESTROY_LIMIT: Duration = Duration::from_mins(1);

impl Control {
    /// When it returns, nothing of the sandbox runs. Of two callers one succeeds; the other learns,
    /// once the sandbox is gone, that there is none.
    pub async fn kill(self: &Arc<Self>, tenant: &Tenant, id: &SandboxId) -> Result<()> {
        self.end(tenant, id, EndReason::Killed).await
    }

    pub(crate) async fn end(
        self: &Arc<Self>,
        tenant: &Tenant,
        id: &SandboxId,
        reason: EndReason,
    ) -> Result<()> {
        let found = self.look_up(tenant, id);
        if matches!(found, Lookup::Missing) {
            return Err(self.not_found(tenant, id).await);
        }
        let first = matches!(found, Lookup::Running(_) | Lookup::Paused(_))
            && self.registry.begin_end(id, &tenant.id) == Some(Phase::Running);
        let (control, owned) = (Arc::clone(self), id.clone());
        let work = async move {
            if first {
                control.end_owned(&owned, reason).await
            } else {
                control.destroy_on_node(&owned, reason).await
            }
        };
        self.finish(work.in_current_span()).await?;
        if first {
            Ok(())
        } else {
            Err(self.not_found(tenant, id).await)
        }
    }

    /// Ends one that is in phase `Ending`, and records it.
    async fn end_owned(self: &Arc<Self>, id: &SandboxId, reason: EndReason) -> Result<()> {
        if let Err(error) = self.destroy_on_node(id, reason).await {
            self.registry.abort_end(id);
            return Err(error);
        }
        let end = EndRow::now(reason, "");
        let written = self.store.end_sandbox(id, &end).await;
        // In this order: until the row has its end, a second kill waits and then says 404.
        self.registry.remove(id);
        self.note_ended(id, reason);
        tracing::info!(reason = reason.as_str(), "sandbox ended");
        self.sweep_later();
        match written {
            Ok(()) => self.forget_end_later(id),
            // It is gone, so its owner is not told otherwise. The node keeps why.
            Err(error) => {
                tracing::error!(error = %Chain(&error), "the end of a sandbox is not on record yet");
            }
        }
        Ok(())
    }

    /// Its end is on record, and its event as soon as the journal has written that: only then, and
    /// with both on the disk, does the node forget why it ended.
    pub(crate) fn forget_end_later(self: &Arc<Self>, id: &SandboxId) {
        let (control, id) = (Arc::clone(self), id.clone());
        self.in_background(async move {
            if !control.journal.flush().await {
                return;
            }
            match control.store.settled().await {
                Ok(()) => control.node.forget_end(&id).await,
                // The next start finds it again, and whether it is on record.
                Err(error) => tracing::warn!(error = %Chain(&error), "an end is not forgotten"),
            }
        });
    }

    pub(crate) async fn destroy_on_node(&self, id: &SandboxId, reason: EndReason) -> Result<()> {
        match tokio::time::timeout(DESTROY_LIMIT, self.node.destroy(id, reason)).await {
            Ok(Ok(()) | Err(NodeError::SandboxNotFound(_))) => Ok(()),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(Error::Timeout {
                what: "ending the sandbox",
                limit: DESTROY_LIMIT,
            }),
        }
    }
}
