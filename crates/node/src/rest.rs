//! Pause and resume.
//!
//! `paused.json` is written before anything rests, and removed when everything runs again.
//! A crash in between leaves the sandbox in the state that the file tells: adoption freezes what
//! should rest and thaws what should run.

use std::sync::Arc;

use soulbox_runtime::{Disk, Error, LogLevel, NodeEvent, Paused, Result};
use soulbox_types::{Kept, OnTimeout, SandboxId, SandboxState, UnixMillis};

use crate::{
    LocalNode,
    local::{blocking, running},
    supervise::supervise,
};

impl LocalNode {
    pub(crate) async fn pause_in_task(self: Arc<Self>, id: SandboxId, keep: Kept) -> Result<()> {
        let turn = self.turn(&id)?;
        let _ours = turn.lock().await;
        let folder = {
            let mut entries = self.entries().lock();
            let entry = entries
                .get_mut(&id)
                .ok_or_else(|| Error::SandboxNotFound(id.clone()))?;
            if entry.state != SandboxState::Running {
                return Err(Error::WrongState {
                    id,
                    state: entry.state,
                });
            }
            // From here on nobody dials it, and its end is no death.
            entry.state = SandboxState::Paused;
            entry.leave_alone();
            entry.folder.clone()
        };
        let paused = Paused {
            kept: keep,
            at: UnixMillis::now(),
        };
        let runtime = self.runtime();
        let result = async {
            // On record first: were it the other way round, a full disk could leave it frozen, or
            // ended, with nothing that says so.
            let writing = folder.clone();
            blocking(move || writing.paused(&paused)).await?;
            let rested = match keep {
                Kept::Memory => runtime.pause(&id).await,
                Kept::Filesystem => runtime.stop(&id).await,
            };
            if rested.is_err() {
                let undoing = folder.clone();
                blocking(move || undoing.resumed()).await?;
            }
            rested
        }
        .await;
        let mut entries = self.entries().lock();
        let entry = entries
            .get_mut(&id)
            .ok_or_else(|| Error::SandboxNotFound(id.clone()))?;
        match result {
            Ok(()) => {
                entry.paused = Some(paused);
                entry.note(LogLevel::Info, format!("paused, {} kept", keep.as_str()));
                if entry.is_shown() {
                    self.tell(NodeEvent::Paused { id });
                }
                Ok(())
            }
            Err(error) => {
                // The runtime has let it go on, or it has died of it: the supervisor sees which.
                entry.state = SandboxState::Running;
                entry.note(LogLevel::Error, format!("could not pause: {error}"));
                drop(entries);
                self.watch_over(&id);
                Err(error)
            }
        }
    }

    /// Stops a running sandbox in place without writing anything. A restart of the server lets it
    /// go on: nothing on disk says that it rests.
    pub(crate) async fn hold(self: &Arc<Self>, id: &SandboxId, reason: &str) -> Result<()> {
        let turn = self.turn(id)?;
        let _ours = turn.lock().await;
        running(&self.entries().lock(), id)?;
        self.runtime().hold(id).await?;
        let mut entries = self.entries().lock();
        let entry = entries
            .get_mut(id)
            .ok_or_else(|| Error::SandboxNotFound(id.clone()))?;
        entry.state = SandboxState::Paused;
        entry.paused = Some(Paused {
            kept: Kept::Memory,
            at: UnixMillis::now(),
        });
        entry.leave_alone();
        entry.note(LogLevel::Error, format!("held: {reason}"));
        if entry.is_shown() {
            self.tell(NodeEvent::Paused { id: id.clone() });
        }
        Ok(())
    }

    pub(crate) async fn resume_in_task(
        self: Arc<Self>,
        id: SandboxId,
        deadline: UnixMillis,
        want: Kept,
    ) -> Result<Kept> {
        let turn = self.turn(&id)?;
        let _ours = turn.lock().await;
        let (folder, paused, mut spec) = {
            let entries = self.entries().lock();
            let entry = entries
                .get(&id)
                .ok_or_else(|| Error::SandboxNotFound(id.clone()))?;
            match (entry.state, entry.paused) {
                (SandboxState::Running, _) => return Ok(Kept::Memory),
                (SandboxState::Paused, Some(paused)) => {
                    (entry.folder.clone(), paused, entry.spec.clone())
                }
                (state, _) => return Err(Error::WrongState { id, state }),
            }
        };
        let runtime = self.runtime();
        let restored = if paused.kept == Kept::Memory && want == Kept::Memory {
            runtime.resume(&id).await?;
            Kept::Memory
        } else {
            if paused.kept == Kept::Memory {
                runtime.stop(&id).await?;
                let (writing, at) = (folder.clone(), paused.at);
                let changed = Paused {
                    kept: Kept::Filesystem,
                    at,
                };
                blocking(move || writing.paused(&changed)).await?;
            }
            spec.deadline = deadline;
            let origin = self.origin(&spec, Disk::Kept).await?;
            runtime
                .create(&spec, origin, &|started| folder.started(started))
                .await?;
            if let Err(error) = self.get_ready(&spec).await {
                // It goes on resting: its files are worth more than its start command.
                runtime.stop(&id).await?;
                return Err(error);
            }
            Kept::Filesystem
        };
        let writing = folder.clone();
        blocking(move || {
            writing.lease(deadline)?;
            writing.resumed()
        })
        .await?;
        {
            let mut entries = self.entries().lock();
            let entry = entries
                .get_mut(&id)
                .ok_or_else(|| Error::SandboxNotFound(id.clone()))?;
            entry.state = SandboxState::Running;
            entry.paused = None;
            entry.spec.deadline = deadline;
            entry.deadline.send_replace(deadline);
            entry.note(
                LogLevel::Info,
                format!("resumed, {} restored", restored.as_str()),
            );
        }
        self.watch_over(&id);
        Ok(restored)
    }

    /// Called by the supervisor when a sandbox's time is over and it asked to rest then.
    pub(crate) async fn pause_at_deadline(self: &Arc<Self>, id: &SandboxId, keep: Kept) {
        match Arc::clone(self).pause_in_task(id.clone(), keep).await {
            Ok(()) | Err(Error::WrongState { .. } | Error::SandboxNotFound(_)) => {}
            Err(error) => {
                // Its state must not be lost because a disk is full: it gets more time.
                tracing::error!(sandbox = %id, %error, "could not pause at the deadline; trying again in a minute");
                let later = UnixMillis::now().plus(std::time::Duration::from_mins(1));
                if let Some(entry) = self.entries().lock().get_mut(id) {
                    entry.spec.deadline = later;
                    entry.deadline.send_replace(later);
                }
                self.watch_over(id);
            }
        }
    }

    pub(crate) fn turn(&self, id: &SandboxId) -> Result<Arc<tokio::sync::Mutex<()>>> {
        let entries = self.entries().lock();
        match entries.get(id) {
            Some(entry) if entry.state != SandboxState::Destroying => Ok(Arc::clone(&entry.turn)),
            _ => Err(Error::SandboxNotFound(id.clone())),
        }
    }

    /// What its deadline means for a sandbox that runs.
    pub(crate) fn on_timeout(&self, id: &SandboxId) -> Option<OnTimeout> {
        running(&self.entries().lock(), id)
            .ok()
            .map(|entry| entry.spec.lifecycle.on_timeout)
    }

    /// Starts a supervisor for a running sandbox, in place of the one before.
    pub(crate) fn watch_over(self: &Arc<Self>, id: &SandboxId) {
        if let Some(entry) = self.entries().lock().get_mut(id) {
            let task = supervise(Arc::downgrade(self), id.clone(), entry.deadline.subscribe());
            entry.leave_alone();
            entry.supervisor = Some(tokio::spawn(task).abort_handle());
        }
    }
}
