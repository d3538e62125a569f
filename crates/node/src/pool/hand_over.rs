//! From a waiting sandbox to the user's.

use std::{sync::Arc, time::Instant};

use soulbox_guest::{Guest, InitUpdate, RuntimeDial};
use soulbox_runtime::{Error, LogLevel, Result, SandboxStatus, WarmWish};
use soulbox_types::{EndReason, Purpose, SandboxId, SandboxSpec, SandboxState};

use crate::{LocalNode, local::blocking, metrics::History};

impl LocalNode {
    /// Serves a create with a claimed sandbox. `None`: it has to be made, with the same id; nothing
    /// is left of the one that waited.
    pub(crate) async fn hand_over(
        self: &Arc<Self>,
        spec: &SandboxSpec,
    ) -> Result<Option<SandboxStatus>> {
        let claimed = self.pool().shelves().redeem(&spec.id);
        let Some(wish) = claimed else {
            self.wait_for_end_of_waiting(&spec.id).await?;
            return Ok(None);
        };
        let result = if let Err(error) = self.check_disk() {
            Err(error)
        } else if can_become(&wish, spec) {
            self.become_users(spec).await
        } else {
            Err(Error::Unsupported {
                tier: self.runtime().tier(),
                what: "this wish for a waiting sandbox",
            })
        };
        match result {
            Ok(status) => {
                self.pool().shelves().served(&wish);
                Ok(Some(status))
            }
            Err(error) => {
                if self.is_ending(&spec.id) {
                    return Err(Error::SandboxNotFound(spec.id.clone()));
                }
                tracing::warn!(sandbox = %spec.id, %error, "a waiting sandbox cannot be used");
                self.pool().shelves().failed(&wish, Instant::now());
                if let Some(entry) = self.entries().lock().get_mut(&spec.id) {
                    // Not the user's end: theirs is about to be made.
                    Arc::make_mut(&mut entry.spec).purpose = Purpose::Warm;
                }
                self.finish(&spec.id, EndReason::Killed, "it cannot be used")
                    .await;
                Ok(None)
            }
        }
    }

    async fn become_users(self: &Arc<Self>, wish: &SandboxSpec) -> Result<SandboxStatus> {
        let id = &wish.id;
        let turn = self.turn(id)?;
        let _ours = turn.lock().await;
        let (old, spec, folder) = {
            let mut entries = self.entries().lock();
            self.check_promises(&entries, wish)?;
            let entry = entries
                .get_mut(id)
                .filter(|e| e.state() == SandboxState::Running && e.spec.purpose == Purpose::Warm)
                .ok_or_else(|| Error::SandboxNotFound(id.clone()))?;
            let mut spec = wish.clone();
            // envd knows this one.
            spec.node_token = entry.spec.node_token.clone();
            entry.transition(SandboxState::Creating)?;
            let old = std::mem::replace(&mut entry.spec, Arc::new(spec.clone()));
            entry.leave_alone();
            (old, spec, entry.folder.clone())
        };
        let (writing, written) = (folder.clone(), spec.clone());
        tokio::try_join!(
            // With its marker still there it is nobody's for a server that starts anew.
            blocking(move || writing.create(&written)),
            self.tell_envd(&spec),
            self.change_limits(&old, &spec),
            self.change_network(&old, &spec),
        )?;
        // From here on it is the user's also for a server that starts anew.
        blocking(move || folder.handed_over()).await?;
        let status = {
            let mut entries = self.entries().lock();
            let entry = entries
                .get_mut(id)
                .ok_or_else(|| Error::SandboxNotFound(id.clone()))?;
            // Not if its end began meanwhile.
            entry.transition(SandboxState::Running)?;
            entry.deadline.send_replace(spec.deadline);
            // What it did while it waited is nobody's business.
            entry.history = History::default();
            entry.clear_notes();
            entry.note(LogLevel::Info, "sandbox started");
            entry.status()
        };
        self.watch_over(id);
        Ok(status)
    }

    async fn tell_envd(&self, spec: &SandboxSpec) -> Result<()> {
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
        let dial = RuntimeDial::new(self.runtime(), spec.id.clone());
        let guest = Guest::new(Arc::new(dial), spec);
        guest.init(&update).await.map_err(|error| Error::Start {
            step: "envd's settings".to_owned(),
            message: error.to_string(),
        })
    }

    async fn change_limits(&self, old: &SandboxSpec, new: &SandboxSpec) -> Result<()> {
        if old.limits == new.limits {
            return Ok(());
        }
        self.runtime().set_limits(&new.id, &new.limits).await
    }

    async fn change_network(&self, old: &SandboxSpec, new: &SandboxSpec) -> Result<()> {
        if old.network == new.network {
            return Ok(());
        }
        self.runtime().set_network(&new.id, &new.network).await
    }

    /// A claim that came too late: the sandbox is being ended, and its id is free after that.
    async fn wait_for_end_of_waiting(self: &Arc<Self>, id: &SandboxId) -> Result<()> {
        let waiting = {
            let entries = self.entries().lock();
            entries
                .get(id)
                .is_some_and(|entry| entry.spec.purpose == Purpose::Warm)
        };
        if waiting {
            soulbox_runtime::Node::destroy(&**self, id, EndReason::Killed).await?;
        }
        Ok(())
    }
}

/// Disk, volumes and what it stands on cannot be changed in a running sandbox.
fn can_become(member: &WarmWish, spec: &SandboxSpec) -> bool {
    spec.purpose == Purpose::User
        && spec.snapshot.is_none()
        && spec.volumes.is_empty()
        && spec.template == member.template
        && spec.build == member.build
        && spec.limits.disk_mib == member.disk_mib
}
