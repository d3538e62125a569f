//! From a member of the pool, ready or still starting, to the user's sandbox.

use std::{sync::Arc, time::Instant};

use soulbox_envd_client::{EnvdClient, InitUpdate, RuntimeDial};
use soulbox_runtime::{Error, LogLevel, PoolKey, Result, SandboxStatus};
use soulbox_types::{EndReason, Purpose, SandboxId, SandboxSpec, SandboxState};
use tokio::{sync::watch, time::timeout};

use super::warm::WarmReservation;
use crate::{
    LocalNode,
    creates::Create,
    entry::{Entry, STARTED},
    folder::Folder,
    local::blocking,
    metrics::History,
};

/// A member that is the user's in memory.
struct Taken {
    old: Arc<SandboxSpec>,
    spec: SandboxSpec,
    folder: Folder,
    /// As [`Entry::made`].
    made: watch::Receiver<bool>,
}

impl LocalNode {
    /// Serves a create with a reserved member. `None`: it has to be made, with the same id; nothing
    /// is left of the member.
    pub(crate) async fn hand_over(
        self: &Arc<Self>,
        spec: &SandboxSpec,
        create: &Create<'_>,
    ) -> Result<Option<SandboxStatus>> {
        let reserved = self.pool().warm().redeem(&spec.id);
        let Some(reservation) = reserved else {
            self.wait_for_end_of_waiting(&spec.id).await?;
            return Ok(None);
        };
        match self.serve(spec, &reservation, create).await {
            Ok(status) => {
                self.pool().warm().served(&reservation.key);
                Ok(Some(status))
            }
            Err(error) => {
                if create.killed.is_cancelled() {
                    return Err(Error::SandboxNotFound(spec.id.clone()));
                }
                tracing::warn!(sandbox_id = %spec.id, %error, "a waiting sandbox cannot be used");
                if reservation.is_ready() {
                    self.pool().warm().failed(&reservation.key, Instant::now());
                }
                // Not the user's end: theirs is about to be made.
                self.make_nobodys(&spec.id);
                let ended = self
                    .finish_or_leave(&spec.id, EndReason::Killed, "it cannot be used")
                    .await;
                // While it is there, none can be made under its id.
                if ended { Ok(None) } else { Err(error) }
            }
        }
    }

    async fn serve(
        self: &Arc<Self>,
        spec: &SandboxSpec,
        reservation: &WarmReservation,
        create: &Create<'_>,
    ) -> Result<SandboxStatus> {
        self.check_disk()?;
        let taken = self.take(&reservation.key, spec)?;
        if let Some(ready) = &reservation.ready {
            tokio::select! {
                () = create.killed.cancelled() => {
                    return Err(Error::SandboxNotFound(spec.id.clone()));
                }
                ready = self.wait_until_ready(&taken, ready.clone()) => ready?,
            }
        }
        self.become_users(taken).await
    }

    /// From here on it is the user's in memory: told, counted and ended as theirs.
    fn take(&self, member: &PoolKey, request: &SandboxSpec) -> Result<Taken> {
        if PoolKey::of(request).as_ref() != Some(member) {
            return Err(Error::Unsupported {
                tier: request.tier,
                what: "this request for a waiting sandbox".into(),
            });
        }
        let mut entries = self.entries().lock();
        self.check_promises(&entries, request)?;
        let mut entry = entries
            .get_mut(&request.id)
            .filter(|entry| entry.is_nobodys())
            .ok_or_else(|| Error::SandboxNotFound(request.id.clone()))?;
        if entry.state() != SandboxState::Creating {
            entry.transition(SandboxState::Creating)?;
        }
        let mut spec = request.clone();
        // envd knows this one.
        spec.node_token = entry.spec.node_token.clone();
        let old = std::mem::replace(&mut entry.spec, Arc::new(spec.clone()));
        entry.leave_alone();
        Ok(Taken {
            old,
            spec,
            folder: entry.folder.clone(),
            made: entry.made.subscribe(),
        })
    }

    /// What was taken is not the user's after all. One whose end has begun ended as theirs.
    pub(crate) fn make_nobodys(&self, id: &SandboxId) {
        if let Some(mut entry) = self.entries().lock().get_mut(id)
            && entry.state() != SandboxState::Destroying
        {
            Arc::make_mut(&mut entry.spec).purpose = Purpose::Warm;
        }
    }

    /// Whoever makes it goes on; with the cpu of a user's from now on.
    async fn wait_until_ready(
        &self,
        taken: &Taken,
        mut ready: watch::Receiver<bool>,
    ) -> Result<()> {
        let _waiting = self.creates().wait();
        let waited = async {
            let mut made = taken.made.clone();
            let was_made = *made.borrow();
            self.speed_up(&taken.spec).await;
            if !was_made {
                // There may have been nothing of it yet, or what was set for the pool came last.
                let _made = made.wait_for(|made| *made).await.is_ok();
                self.speed_up(&taken.spec).await;
            }
            ready.wait_for(|ready| *ready).await.map(drop)
        };
        let limit = self.ready_limit();
        match timeout(limit, waited).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Error::Start {
                step: "a sandbox of the pool".to_owned(),
                message: "it could not be made".to_owned(),
            }),
            Err(_) => Err(Error::Timeout {
                what: "a sandbox of the pool that was being made".into(),
                limit,
            }),
        }
    }

    /// What counts is whether its limits can be set when it is handed over.
    async fn speed_up(&self, spec: &SandboxSpec) {
        let faster = async {
            let runtime = self.runtime(spec.tier)?;
            runtime.set_limits(&spec.id, &spec.limits).await
        };
        if let Err(error) = faster.await {
            tracing::debug!(sandbox_id = %spec.id, %error, "it is made with little of the cpu");
        }
    }

    async fn become_users(self: &Arc<Self>, taken: Taken) -> Result<SandboxStatus> {
        let Taken {
            old, spec, folder, ..
        } = taken;
        let id = &spec.id;
        let transition_lock = self.transition_lock(id)?;
        let _ours = transition_lock.lock().await;
        let (writing, written) = (folder.clone(), spec.clone());
        let runtime = self.runtime(spec.tier)?;
        tokio::try_join!(
            // With its marker still there it is nobody's for a server that starts anew.
            blocking(move || writing.create(&written)),
            self.notify_envd(&spec),
            // Also when they are the same: it had little of the cpu until now.
            runtime.set_limits(id, &spec.limits),
            self.change_network(&old, &spec),
        )?;
        // From here on it is the user's also for a server that starts anew.
        blocking(move || folder.handed_over()).await?;
        let status = {
            let mut entries = self.entries().lock();
            let mut entry = entries
                .get_mut(id)
                .ok_or_else(|| Error::SandboxNotFound(id.clone()))?;
            // Not if its end began meanwhile.
            entry.transition(SandboxState::Running)?;
            entry.deadline.send_replace(spec.deadline);
            // What it did while it waited is nobody's business.
            entry.history = History::default();
            entry.clear_notes();
            entry.note(LogLevel::Info, STARTED);
            entry.status()
        };
        self.watch_over(id);
        Ok(status)
    }

    async fn notify_envd(&self, spec: &SandboxSpec) -> Result<()> {
        let template = self
            .templates()
            .of(spec)
            .ok_or_else(|| Error::TemplateNotFound(spec.template.clone()))?;
        let mut env = template.env.clone();
        env.extend(spec.env.clone());
        let update = InitUpdate {
            access_token: spec.access_token.clone(),
            env: Some(env),
            default_user: Some(template.default_user.clone()),
            default_workdir: Some(template.default_workdir.clone()),
            sandbox_id: Some(spec.id.to_string()),
            template_id: Some(spec.template.to_string()),
            memory_bytes: Some(spec.limits.memory_bytes()),
            cpu_count: Some(spec.limits.cpu_count()),
            disk_bytes: Some(spec.limits.disk_bytes()),
        };
        let dial = RuntimeDial::new(self.runtime(spec.tier)?, spec.id.clone());
        let guest = EnvdClient::new(Arc::new(dial), spec);
        guest.init(&update).await.map_err(|error| Error::Start {
            step: "envd's settings".to_owned(),
            message: error.to_string(),
        })
    }

    async fn change_network(&self, old: &SandboxSpec, new: &SandboxSpec) -> Result<()> {
        if old.network == new.network {
            return Ok(());
        }
        let runtime = self.runtime(new.tier)?;
        runtime.set_network(&new.id, &new.network).await
    }

    /// A reservation that was released before its create came: the sandbox is being ended, and its id is free after that.
    async fn wait_for_end_of_waiting(self: &Arc<Self>, id: &SandboxId) -> Result<()> {
        let waiting = {
            let entries = self.entries().lock();
            entries.get(id).is_some_and(Entry::is_nobodys)
        };
        if waiting {
            self.end_and_wait(id, EndReason::Killed).await?;
        }
        Ok(())
    }
}
