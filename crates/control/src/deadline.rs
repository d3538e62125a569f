//! Moving the end of a sandbox's life.
//!
//! Each move is run to its end even when its client goes away, and holds the sandbox's gate
//! meanwhile: "extend only" compares with a deadline that nobody else is moving.

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use soulbox_runtime::{Error as NodeError, SandboxStatus};
use soulbox_types::{EndReason, SandboxId, UnixMillis};
use tokio::{sync::OwnedMutexGuard, time::timeout};
use tracing::Instrument;

use crate::{Access, Control, Error, Result, Tenant, request::extension};

const MOVE_LIMIT: Duration = Duration::from_secs(10);
/// E2B's bounds of a refresh.
const REFRESH_SECONDS: RangeInclusive<i64> = 0..=3600;
const SHORTEST_REFRESH: Duration = Duration::from_secs(15);

#[derive(Debug, Clone, Copy)]
enum Move {
    /// Earlier or later than before.
    Set(Duration),
    /// At least so long from now.
    Extend(Duration),
}

impl Control {
    /// Its life ends `seconds` from now, earlier or later than before. Zero and less: at once.
    pub async fn set_timeout(
        self: &Arc<Self>,
        tenant: &Tenant,
        id: &SandboxId,
        seconds: i64,
    ) -> Result<()> {
        if let Ok(seconds @ 1..) = u64::try_from(seconds) {
            let wish = Move::Set(Duration::from_secs(seconds));
            return self.move_end(tenant, id, wish).await.map(drop);
        }
        self.running(tenant, id).await?;
        self.end(tenant, id, EndReason::Expired).await
    }

    /// At least so long from now; never shorter than before.
    pub async fn refresh(
        self: &Arc<Self>,
        tenant: &Tenant,
        id: &SandboxId,
        seconds: i64,
    ) -> Result<()> {
        if !REFRESH_SECONDS.contains(&seconds) {
            let message = "duration must be between 0 and 3600 seconds";
            return Err(Error::Invalid(message.to_owned()));
        }
        let duration = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        let wish = Move::Extend(duration.max(SHORTEST_REFRESH));
        self.move_end(tenant, id, wish).await.map(drop)
    }

    /// Finds a running sandbox and gives it at least `seconds` more.
    pub async fn connect(
        self: &Arc<Self>,
        tenant: &Tenant,
        id: &SandboxId,
        seconds: i64,
    ) -> Result<Access> {
        // The length is checked before the existence, as E2B does.
        let wish = Move::Extend(extension(seconds, self.config.max_timeout)?);
        let status = self.move_end(tenant, id, wish).await?;
        Ok(Access::from(&status))
    }

    async fn move_end(
        self: &Arc<Self>,
        tenant: &Tenant,
        id: &SandboxId,
        wish: Move,
    ) -> Result<SandboxStatus> {
        let (control, tenant, id) = (Arc::clone(self), tenant.clone(), id.clone());
        let work = async move {
            let _held = control.hold_deadline(&id).await?;
            let status = control.running(&tenant, &id).await?;
            if let Some(deadline) = wish.deadline(&status, control.config.max_timeout)? {
                control.write_deadline(&tenant, &id, deadline).await?;
            }
            Ok(status)
        };
        self.finish(work.in_current_span()).await
    }

    async fn write_deadline(
        &self,
        tenant: &Tenant,
        id: &SandboxId,
        deadline: UnixMillis,
    ) -> Result<()> {
        match timeout(MOVE_LIMIT, self.node.set_deadline(id, deadline)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(NodeError::SandboxNotFound(_))) => Err(self.not_found(tenant, id).await),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(too_slow()),
        }
    }

    /// Nothing to hold for a sandbox that is not there.
    async fn hold_deadline(&self, id: &SandboxId) -> Result<Option<OwnedMutexGuard<()>>> {
        let Some(gate) = self.registry.deadline_gate(id) else {
            return Ok(None);
        };
        let held = timeout(MOVE_LIMIT, gate.lock_owned()).await;
        held.map(Some).map_err(|_| too_slow())
    }
}

impl Move {
    /// `None`: it stays where it is. Never later than the longest life allows.
    fn deadline(self, status: &SandboxStatus, max: Duration) -> Result<Option<UnixMillis>> {
        let now = UnixMillis::now();
        let last = status.spec.created_at.plus(max);
        match self {
            Self::Set(_) if last <= now => {
                Err(Error::Invalid("Max instance length exceeded".to_owned()))
            }
            Self::Set(duration) => Ok(Some(now.plus(duration).min(last))),
            Self::Extend(duration) => {
                let wanted = now.plus(duration).min(last);
                Ok(Some(wanted).filter(|wanted| *wanted > status.spec.deadline))
            }
        }
    }
}

fn too_slow() -> Error {
    Error::Timeout {
        what: "moving the deadline",
        limit: MOVE_LIMIT,
    }
}
