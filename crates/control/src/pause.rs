//! Pausing a sandbox and resuming it.
//!
//! Both hold the sandbox's gate: of many who wake one sandbox the first does it, and the others
//! find it running.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use soulbox_runtime::{Error as NodeError, NotWoken, SandboxStatus, Waker};
use soulbox_types::{OnTimeout, PauseMode, SandboxId, SandboxState, UnixMillis};
use tokio::time::timeout;
use tracing::Instrument;

use crate::{
    Access, Control, Error, Result, Tenant,
    deadline::Move,
    registry::Phase,
    request::{extension, lifetime},
    view::Lookup,
};

/// Of the node's own limits the longest, and some: this one is for a node that does not answer.
const PAUSE_LIMIT: Duration = Duration::from_secs(100);
const RESUME_LIMIT: Duration = Duration::from_secs(55);
/// How often a sandbox is found in another state than a moment before. It can only be paused at
/// its deadline meanwhile, which a resume moves away.
const ATTEMPTS: u32 = 3;

/// The answer to connect and resume.
#[derive(Debug, Clone)]
pub struct Connected {
    pub access: Access,
    /// What came back of a paused sandbox; `None` when it was running.
    pub restored: Option<PauseMode>,
}

/// Whom a sandbox that runs already suits.
#[derive(Debug, Clone, Copy)]
enum Running {
    Extend,
    Refuse,
}

/// How to wake one.
#[derive(Debug, Clone, Copy)]
struct Wake {
    life: Duration,
    want: PauseMode,
    running: Running,
}

impl Control {
    /// When it returns, nobody inside answers any more, and what is kept is on disk or frozen.
    /// `only_healthy`: not while envd does not answer.
    pub async fn pause(
        self: &Arc<Self>,
        tenant: &Tenant,
        id: &SandboxId,
        keep: PauseMode,
        only_healthy: bool,
    ) -> Result<()> {
        let (control, tenant, id) = (Arc::clone(self), tenant.clone(), id.clone());
        let work = async move {
            let _held = control.hold(&id).await?;
            match control.running(&tenant, &id).await {
                Err(Error::SandboxPaused { id }) => return Err(Error::AlreadyPaused { id }),
                found => drop(found?),
            }
            if only_healthy && !control.guest_answers(&id).await {
                return Err(Error::GuestUnresponsive { id });
            }
            match timeout(PAUSE_LIMIT, control.node.pause(&id, keep)).await {
                Ok(Ok(())) => {
                    control.registry.set_paused(&id);
                    control.note_paused(&id);
                    tracing::info!(kept = keep.as_str(), "sandbox paused");
                    Ok(())
                }
                Ok(Err(error)) => Err(control.pause_error(&tenant, &id, error).await),
                Err(_) => Err(Error::Timeout {
                    what: "pausing the sandbox",
                    limit: PAUSE_LIMIT,
                }),
            }
        };
        self.finish(work.in_current_span()).await
    }

    /// Gives a running sandbox at least `seconds` more, and wakes a paused one for so long.
    /// [`PauseMode::Filesystem`]: one that is woken starts anew from its files.
    pub async fn connect(
        self: &Arc<Self>,
        tenant: &Tenant,
        id: &SandboxId,
        seconds: i64,
        want: PauseMode,
    ) -> Result<Connected> {
        // The length is checked before the existence, as E2B does.
        let life = extension(seconds, self.config.max_timeout)?;
        let running = Running::Extend;
        self.wake(
            tenant,
            id,
            Wake {
                life,
                want,
                running,
            },
        )
        .await
    }

    /// Wakes a paused sandbox for `seconds`.
    pub async fn resume(
        self: &Arc<Self>,
        tenant: &Tenant,
        id: &SandboxId,
        seconds: i64,
        want: PauseMode,
    ) -> Result<Connected> {
        let life = lifetime(seconds, self.config.max_timeout)?;
        let running = Running::Refuse;
        self.wake(
            tenant,
            id,
            Wake {
                life,
                want,
                running,
            },
        )
        .await
    }

    async fn wake(
        self: &Arc<Self>,
        tenant: &Tenant,
        id: &SandboxId,
        wake: Wake,
    ) -> Result<Connected> {
        let (control, tenant, id) = (Arc::clone(self), tenant.clone(), id.clone());
        let work = async move {
            let _held = control.hold(&id).await?;
            for _ in 0..ATTEMPTS {
                let connected = match control.look_up(&tenant, &id) {
                    Lookup::Missing => return Err(control.not_found(&tenant, &id).await),
                    Lookup::Ending => return Err(Error::SandboxEnding { id }),
                    Lookup::Running(status) => control.meet(&tenant, &status, wake).await,
                    Lookup::Paused(status) => control.wake_held(&tenant, &status, wake).await,
                };
                match connected {
                    // Its deadline paused it, or traffic woke it, just now.
                    Err(Error::SandboxPaused { .. }) => {}
                    Err(Error::AlreadyRunning { .. })
                        if matches!(wake.running, Running::Extend) => {}
                    connected => return connected,
                }
            }
            Err(Error::SandboxPaused { id })
        };
        self.finish(work.in_current_span()).await
    }

    async fn meet(&self, tenant: &Tenant, status: &SandboxStatus, wake: Wake) -> Result<Connected> {
        let id = &status.spec.id;
        if matches!(wake.running, Running::Refuse) {
            return Err(Error::AlreadyRunning { id: id.clone() });
        }
        self.apply(tenant, status, Move::Extend(wake.life)).await?;
        Ok(Connected {
            access: Access::from(status),
            restored: None,
        })
    }

    async fn wake_held(
        &self,
        tenant: &Tenant,
        status: &SandboxStatus,
        wake: Wake,
    ) -> Result<Connected> {
        let id = &status.spec.id;
        if status.state == SandboxState::Running {
            // Its time is over, and the node has not begun to pause it: that is done first.
            self.pause_overdue(tenant, status).await?;
        }
        let limit = self.config.max_sandboxes_per_tenant;
        let is_paused = |id: &SandboxId| self.node.paused(id).is_some();
        if !self.registry.begin_wake(id, &tenant.id, limit, is_paused) {
            return Err(Error::TooManySandboxes(limit));
        }
        let deadline = UnixMillis::now().plus(wake.life);
        let woken = timeout(RESUME_LIMIT, self.node.resume(id, deadline, wake.want)).await;
        self.registry.end_wake(id);
        let restored = match woken {
            Ok(Ok(restored)) => restored,
            Ok(Err(error)) => return Err(self.pause_error(tenant, id, error).await),
            Err(_) => {
                return Err(Error::Timeout {
                    what: "waking the sandbox",
                    limit: RESUME_LIMIT,
                });
            }
        };
        match self.node.get(id) {
            None => return Err(self.not_found(tenant, id).await),
            // Somebody else woke it: the node left its deadline alone.
            Some(now) if now.spec.deadline != deadline => {
                return Err(Error::AlreadyRunning { id: id.clone() });
            }
            Some(_) => {}
        }
        self.note_resumed(id);
        tracing::info!(restored = restored.as_str(), "sandbox resumed");
        Ok(Connected {
            access: Access::from(status),
            restored: Some(restored),
        })
    }

    /// For traffic: within the tenant's limit, as any other wake.
    async fn wake_for_traffic(
        self: &Arc<Self>,
        id: &SandboxId,
        deadline: UnixMillis,
    ) -> Result<(), NotWoken> {
        let missing = || NodeError::SandboxNotFound(id.clone());
        // Also while somebody else wakes it: then it runs afterwards.
        let _held = self.hold(id).await.map_err(|_| NodeError::Timeout {
            what: "waiting for another request about this sandbox".into(),
            limit: RESUME_LIMIT,
        })?;
        let status = self.node.get(id).ok_or_else(missing)?;
        let tenant = &status.spec.tenant;
        if self.registry.phase_for(id, tenant) != Some(Phase::Running) {
            return Err(missing().into());
        }
        if status.state == SandboxState::Running {
            return Ok(());
        }
        let limit = self.config.max_sandboxes_per_tenant;
        let is_paused = |id: &SandboxId| self.node.paused(id).is_some();
        if !self.registry.begin_wake(id, tenant, limit, is_paused) {
            return Err(NotWoken::TooMany(limit));
        }
        let woken = self.node.resume(id, deadline, PauseMode::Memory).await;
        self.registry.end_wake(id);
        woken?;
        self.note_resumed(id);
        tracing::info!("sandbox resumed by traffic");
        Ok(())
    }

    async fn pause_overdue(&self, tenant: &Tenant, status: &SandboxStatus) -> Result<()> {
        let OnTimeout::Pause(keep) = status.spec.lifecycle.on_timeout else {
            return Ok(());
        };
        let id = &status.spec.id;
        match timeout(PAUSE_LIMIT, self.node.pause(id, keep)).await {
            Ok(Ok(()) | Err(NodeError::WrongState { .. })) => Ok(()),
            Ok(Err(error)) => Err(self.pause_error(tenant, id, error).await),
            Err(_) => Err(Error::Timeout {
                what: "pausing the sandbox",
                limit: PAUSE_LIMIT,
            }),
        }
    }

    async fn pause_error(&self, tenant: &Tenant, id: &SandboxId, error: NodeError) -> Error {
        match error {
            NodeError::SandboxNotFound(_) => self.not_found(tenant, id).await,
            NodeError::WrongState {
                state: SandboxState::Paused,
                ..
            } => Error::AlreadyPaused { id: id.clone() },
            NodeError::WrongState {
                state: SandboxState::Running,
                ..
            } => Error::AlreadyRunning { id: id.clone() },
            NodeError::WrongState { .. } => Error::SandboxEnding { id: id.clone() },
            error => error.into(),
        }
    }
}

impl Control {
    /// For the proxy.
    pub fn waker(self: &Arc<Self>) -> Arc<dyn Waker> {
        Arc::new(TrafficWaker(Arc::clone(self)))
    }
}

#[derive(Debug)]
struct TrafficWaker(Arc<Control>);

#[async_trait]
impl Waker for TrafficWaker {
    async fn wake(&self, id: &SandboxId, deadline: UnixMillis) -> Result<(), NotWoken> {
        let (control, id) = (Arc::clone(&self.0), id.clone());
        // To its end, although the request may go away: a place that was taken is given back.
        let work = async move { Ok(control.wake_for_traffic(&id, deadline).await) };
        match self.0.finish(work.in_current_span()).await {
            Ok(woken) => woken,
            Err(error) => {
                let error = std::io::Error::other(error);
                Err(NodeError::io("waking the sandbox was interrupted", error).into())
            }
        }
    }
}
