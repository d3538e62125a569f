//! What a tenant can see.

use std::{sync::Arc, time::Duration};

use soulbox_runtime::{Error as NodeError, LogEntry, MetricSample, Paused, SandboxStatus, Visited};
use soulbox_types::{Chain, Limits, OnTimeout, SandboxId, SandboxSpec, SandboxState, UnixMillis};

use crate::{Control, Error, Result, Tenant, registry::Phase};

const LOGS_LIMIT: Duration = Duration::from_secs(20);

/// A sandbox as its node knows it.
#[derive(Debug, Clone)]
pub struct Sandbox {
    pub spec: Arc<SandboxSpec>,
    pub state: SandboxState,
    /// How it is paused. Absent also while it is being paused.
    pub paused: Option<Paused>,
}

impl From<Visited<'_>> for Sandbox {
    fn from(visited: Visited<'_>) -> Self {
        Self {
            spec: Arc::clone(visited.spec),
            state: visited.state,
            paused: visited.paused,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Metrics {
    pub limits: Limits,
    /// Oldest first.
    pub samples: Vec<MetricSample>,
}

pub(crate) enum Lookup {
    Running(Box<SandboxStatus>),
    /// At rest, or on the way there.
    Paused(Box<SandboxStatus>),
    /// It is being ended, or its time is over.
    Ending,
    Missing,
}

impl Control {
    /// Shows all running and paused ones of the tenant, in no particular order. Of thousands, so
    /// that none is copied of which nobody wants more than its count.
    ///
    /// One that was never told of, because its create fails just now, may be among them for a
    /// moment: see [`Self::is_known`].
    pub fn visit(&self, tenant: &Tenant, mut each: impl FnMut(Visited<'_>)) {
        let now = UnixMillis::now();
        let hidden = self.registry.not_running();
        self.node.visit(Some(&tenant.id), &mut |visited| {
            if !hidden.is_empty() && hidden.contains(&visited.spec.id) {
                return;
            }
            let state = match Seen::of(visited, now) {
                Seen::Running => SandboxState::Running,
                Seen::Paused => SandboxState::Paused,
                Seen::Ending => return,
            };
            each(Visited { state, ..visited });
        });
    }

    /// Whether somebody was told of it.
    pub fn is_known(&self, id: &SandboxId) -> bool {
        self.registry.phase(id) == Some(Phase::Running)
    }

    /// All running and paused ones of the tenant, in no particular order.
    pub fn list(&self, tenant: &Tenant) -> Vec<Sandbox> {
        let mut all = Vec::new();
        self.visit(tenant, |visited| all.push(Sandbox::from(visited)));
        all.retain(|sandbox| self.is_known(&sandbox.spec.id));
        all
    }

    pub async fn get(&self, tenant: &Tenant, id: &SandboxId) -> Result<Sandbox> {
        match self.look_up(tenant, id) {
            Lookup::Running(status) => Ok(sandbox(*status, SandboxState::Running)),
            Lookup::Paused(status) => Ok(sandbox(*status, SandboxState::Paused)),
            Lookup::Ending | Lookup::Missing => Err(self.not_found(tenant, id).await),
        }
    }

    pub async fn metrics(&self, tenant: &Tenant, id: &SandboxId) -> Result<Metrics> {
        let status = self.get(tenant, id).await?;
        Ok(Metrics {
            limits: status.spec.limits,
            samples: self.node.metrics(id),
        })
    }

    /// Oldest first. Also of an ended sandbox, for as long as the node keeps its log.
    pub async fn logs(&self, tenant: &Tenant, id: &SandboxId) -> Result<Vec<LogEntry>> {
        if matches!(self.look_up(tenant, id), Lookup::Missing) && !self.owned(tenant, id).await? {
            return Err(self.not_found(tenant, id).await);
        }
        match tokio::time::timeout(LOGS_LIMIT, self.node.logs(id)).await {
            Ok(Ok(entries)) => Ok(entries),
            Ok(Err(NodeError::SandboxNotFound(_))) => Err(self.not_found(tenant, id).await),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(Error::Timeout {
                what: "reading the log",
                limit: LOGS_LIMIT,
            }),
        }
    }

    pub(crate) fn look_up(&self, tenant: &Tenant, id: &SandboxId) -> Lookup {
        match self.registry.phase_for(id, &tenant.id) {
            None | Some(Phase::Creating) => Lookup::Missing,
            Some(Phase::Ending) => Lookup::Ending,
            Some(Phase::Running) => match self.node.get(id) {
                None => Lookup::Missing,
                Some(status) => usable(status, UnixMillis::now()),
            },
        }
    }

    /// For what only makes sense with a running sandbox.
    pub(crate) async fn running(&self, tenant: &Tenant, id: &SandboxId) -> Result<SandboxStatus> {
        match self.look_up(tenant, id) {
            Lookup::Running(status) => Ok(*status),
            Lookup::Paused(_) => Err(Error::SandboxPaused { id: id.clone() }),
            Lookup::Ending => Err(Error::SandboxEnding { id: id.clone() }),
            Lookup::Missing => Err(self.not_found(tenant, id).await),
        }
    }

    pub(crate) async fn not_found(&self, tenant: &Tenant, id: &SandboxId) -> Error {
        let row = self.store.sandbox(id).await.unwrap_or_else(|error| {
            tracing::warn!(error = %Chain(&error), "could not look up why a sandbox is not there");
            None
        });
        let row = row.filter(|row| row.tenant == tenant.id);
        if row.as_ref().is_some_and(|row| row.end.is_none())
            && let Some(broken) = self.node.broken().into_iter().find(|b| b.id == *id)
        {
            return Error::SandboxBroken {
                id: broken.id,
                reason: broken.reason,
            };
        }
        let end = row.and_then(|row| row.end);
        Error::SandboxNotFound {
            id: id.clone(),
            end,
        }
    }

    async fn owned(&self, tenant: &Tenant, id: &SandboxId) -> Result<bool> {
        Ok(self
            .store
            .sandbox(id)
            .await?
            .is_some_and(|row| row.tenant == tenant.id))
    }
}

/// How a sandbox that its node has looks to its tenant.
enum Seen {
    Running,
    Paused,
    Ending,
}

impl Seen {
    /// The node ends it, or pauses it, within a moment after its deadline; nobody shall see
    /// that moment. One that is paused has no deadline.
    fn of(visited: Visited<'_>, now: UnixMillis) -> Self {
        match visited.state {
            SandboxState::Running if visited.deadline > now => Self::Running,
            SandboxState::Running => match visited.on_timeout {
                OnTimeout::Pause(_) => Self::Paused,
                OnTimeout::Kill => Self::Ending,
            },
            SandboxState::Paused => Self::Paused,
            SandboxState::Creating | SandboxState::Destroying => Self::Ending,
        }
    }
}

fn sandbox(status: SandboxStatus, state: SandboxState) -> Sandbox {
    Sandbox {
        paused: status.paused,
        spec: status.spec,
        state,
    }
}

fn usable(status: SandboxStatus, now: UnixMillis) -> Lookup {
    match Seen::of(Visited::of(&status), now) {
        Seen::Running => Lookup::Running(Box::new(status)),
        Seen::Paused => Lookup::Paused(Box::new(status)),
        Seen::Ending => Lookup::Ending,
    }
}
