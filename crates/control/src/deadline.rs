//! Moving the end of a sandbox's life.
//!
//! Each move is run to its end even when its client goes away, and holds the sandbox's gate
//! meanwhile: "extend only" compares with a deadline that nobody else is moving.

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use soulbox_runtime::{Error as NodeError, SandboxStatus};
use soulbox_types::{EndReason, OnTimeout, SandboxId, UnixMillis};
use tokio::{sync::OwnedMutexGuard, time::timeout};
use tracing::Instrument;

use crate::{Control, Error, Result, Tenant};

const MOVE_LIMIT: Duration = Duration::from_secs(10);
/// Longer than a pause or a resume may take: whoever waits for one succeeds after it.
const HOLD_LIMIT: Duration = Duration::from_mins(2);
/// E2B's bounds of a refresh.
const REFRESH_SECONDS: RangeInclusive<i64> = 0..=3600;
const SHORTEST_REFRESH: Duration = Duration::from_secs(15);

#[derive(Debug, Clone, Copy)]
pub(crate) enum Move {
    /// Earlier or later than before.
    Set(Duration),
    /// At least so long from now.
    Extend(Duration),
}

impl Control {
    /// Its life ends `seconds` from now, earlier or later than before. Zero and less: at once, by
    /// what it does at its timeout.
    pub async fn set_timeout(
        self: &Arc<Self>,
        tenant: &Tenant,
        id: &SandboxId,
        seconds: i64,
    ) -> Result<()> {
        if let Ok(seconds @ 1..) = u64::try_from(seconds) {
            let request = Move::Set(Duration::from_secs(seconds));
            self.move_end(tenant, id, request).await?;
            if let Some(status) = self.node.get(id) {
                self.note_deadline(id, status.spec.deadline);
            }
            return Ok(());
        }
        match self.running(tenant, id).await?.spec.lifecycle.on_timeout {
            OnTimeout::Kill => self.end(tenant, id, EndReason::Expired).await,
            OnTimeout::Pause(keep) => self.pause(tenant, id, keep, false).await,
        }
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
        let request = Move::Extend(duration.max(SHORTEST_REFRESH));
        self.move_end(tenant, id, request).await
    }

    async fn move_end(
        self: &Arc<Self>,
        tenant: &Tenant,
        id: &SandboxId,
        request: Move,
    ) -> Result<()> {
        let (control, tenant, id) = (Arc::clone(self), tenant.clone(), id.clone());
        let work = async move {
            let _held = control.hold(&id).await?;
            let status = control.running(&tenant, &id).await?;
            control.apply(&tenant, &status, request).await
        };
        self.finish(work.in_current_span()).await
    }

    /// With the sandbox held.
    pub(crate) async fn apply(
        &self,
        tenant: &Tenant,
        status: &SandboxStatus,
        request: Move,
    ) -> Result<()> {
        let id = &status.spec.id;
        let began = self
            .registry
            .paused_at(id)
            .unwrap_or(status.spec.created_at);
        let last = began.plus(self.config.max_timeout);
        let Some(deadline) = request.deadline(status.spec.deadline, last)? else {
            return Ok(());
        };
        match timeout(MOVE_LIMIT, self.node.set_deadline(id, deadline)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(NodeError::SandboxNotFound(_))) => Err(self.not_found(tenant, id).await),
            Ok(Err(NodeError::WrongState { .. })) => Err(Error::SandboxPaused { id: id.clone() }),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(too_slow()),
        }
    }

    /// Nothing to hold for a sandbox that is not there.
    pub(crate) async fn hold(&self, id: &SandboxId) -> Result<Option<OwnedMutexGuard<()>>> {
        let Some(gate) = self.registry.gate(id) else {
            return Ok(None);
        };
        let held = timeout(HOLD_LIMIT, gate.lock_owned()).await;
        held.map(Some).map_err(|_| Error::Timeout {
            what: "waiting for another request about this sandbox",
            limit: HOLD_LIMIT,
        })
    }
}

impl Move {
    /// `None`: it stays where it is. Never later than `last`.
    fn deadline(self, current: UnixMillis, last: UnixMillis) -> Result<Option<UnixMillis>> {
        let now = UnixMillis::now();
        match self {
            Self::Set(_) if last <= now => {
                Err(Error::Invalid("Max instance length exceeded".to_owned()))
            }
            Self::Set(duration) => Ok(Some(now.plus(duration).min(last))),
            Self::Extend(duration) => {
                let wanted = now.plus(duration).min(last);
                Ok(Some(wanted).filter(|wanted| *wanted > current))
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
