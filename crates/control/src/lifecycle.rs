//! Ending a sandbox, and moving its end.

use std::{sync::Arc, time::Duration};

use soulbox_runtime::{Error as NodeError, SandboxStatus};
use soulbox_store::EndRow;
use soulbox_types::{EndReason, SandboxId, UnixMillis};
use tracing::Instrument;

use crate::{
    Access, Control, Error, Result, Tenant, registry::Phase, request::extension, view::Lookup,
};

const DESTROY_LIMIT: Duration = Duration::from_mins(1);
const DEADLINE_LIMIT: Duration = Duration::from_secs(10);
/// E2B's bounds of a refresh.
const REFRESH_SECONDS: std::ops::RangeInclusive<i64> = 0..=3600;
const SHORTEST_REFRESH: Duration = Duration::from_secs(15);

impl Control {
    /// When it returns, nothing of the sandbox runs. Of two callers one succeeds; the other learns,
    /// once the sandbox is gone, that there is none.
    pub async fn kill(self: &Arc<Self>, tenant: &Tenant, id: &SandboxId) -> Result<()> {
        self.end(tenant, id, EndReason::Killed).await
    }

    /// Its life ends `seconds` from now, earlier or later than before. Zero and less: at once.
    pub async fn set_timeout(
        self: &Arc<Self>,
        tenant: &Tenant,
        id: &SandboxId,
        seconds: i64,
    ) -> Result<()> {
        let status = self.running(tenant, id).await?;
        if seconds <= 0 {
            return self.end(tenant, id, EndReason::Expired).await;
        }
        let now = UnixMillis::now();
        let last = status.spec.created_at.plus(self.config.max_timeout);
        if last <= now {
            return Err(Error::Invalid("Max instance length exceeded".to_owned()));
        }
        let wanted = now.plus(Duration::from_secs(
            u64::try_from(seconds).unwrap_or_default(),
        ));
        let gate = self.registry.deadline_gate(id);
        let _held = match &gate {
            Some(gate) => Some(gate.lock().await),
            None => None,
        };
        self.move_deadline(tenant, id, wanted.min(last)).await
    }

    /// At least so long from now; never shorter than before.
    pub async fn refresh(&self, tenant: &Tenant, id: &SandboxId, seconds: i64) -> Result<()> {
        if !REFRESH_SECONDS.contains(&seconds) {
            return Err(Error::Invalid(
                "duration must be between 0 and 3600 seconds".to_owned(),
            ));
        }
        let duration = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        self.extend(tenant, id, duration.max(SHORTEST_REFRESH))
            .await
            .map(drop)
    }

    /// Finds a running sandbox and gives it at least `seconds` more.
    pub async fn connect(&self, tenant: &Tenant, id: &SandboxId, seconds: i64) -> Result<Access> {
        // The length is checked before the existence, as E2B does.
        let duration = extension(seconds, self.config.max_timeout)?;
        self.extend(tenant, id, duration)
            .await
            .map(|status| Access::from(&status))
    }

    async fn extend(
        &self,
        tenant: &Tenant,
        id: &SandboxId,
        duration: Duration,
    ) -> Result<SandboxStatus> {
        let gate = self.registry.deadline_gate(id);
        let _held = match &gate {
            Some(gate) => Some(gate.lock().await),
            None => None,
        };
        let status = self.running(tenant, id).await?;
        let last = status.spec.created_at.plus(self.config.max_timeout);
        let wanted = UnixMillis::now().plus(duration).min(last);
        if wanted > status.spec.deadline {
            self.move_deadline(tenant, id, wanted).await?;
        }
        Ok(status)
    }

    async fn move_deadline(
        &self,
        tenant: &Tenant,
        id: &SandboxId,
        deadline: UnixMillis,
    ) -> Result<()> {
        let moved = tokio::time::timeout(DEADLINE_LIMIT, self.node.set_deadline(id, deadline));
        match moved.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(NodeError::SandboxNotFound(_))) => Err(self.not_found(tenant, id).await),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(Error::Timeout {
                what: "moving the deadline",
                limit: DEADLINE_LIMIT,
            }),
        }
    }

    async fn end(
        self: &Arc<Self>,
        tenant: &Tenant,
        id: &SandboxId,
        reason: EndReason,
    ) -> Result<()> {
        let found = self.look_up(tenant, id);
        if matches!(found, Lookup::Missing) {
            return Err(self.not_found(tenant, id).await);
        }
        let first = matches!(found, Lookup::Running(_))
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
    async fn end_owned(&self, id: &SandboxId, reason: EndReason) -> Result<()> {
        if let Err(error) = self.destroy_on_node(id, reason).await {
            self.registry.abort_end(id);
            return Err(error);
        }
        let end = EndRow {
            at: UnixMillis::now(),
            reason,
            detail: String::new(),
        };
        let written = self.store.end_sandbox(id, &end).await;
        // In this order: until the row has its end, a second kill waits and then says 404.
        self.registry.remove(id);
        tracing::info!(reason = reason.as_str(), "sandbox ended");
        Ok(written?)
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
