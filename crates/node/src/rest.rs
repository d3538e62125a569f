//! Pause and resume.
//!
//! `paused.json` is written before anything rests, and removed when everything runs again.
//! A crash in between leaves the sandbox in the state that the file tells: adoption freezes what
//! should rest and thaws what should run.

use std::sync::Arc;

use soulbox_runtime::{Disk, Error, LogLevel, NodeEvent, Paused, Result};
use soulbox_types::{Kept, OnTimeout, SandboxId, SandboxSpec, SandboxState, UnixMillis};
use tokio_util::sync::CancellationToken;

use crate::{
    LocalNode,
    admission::{Ask, Holding},
    folder::Folder,
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
                entry.holding = Holding::at_rest(keep);
                entry.note(LogLevel::Info, format!("paused, {} kept", keep.as_str()));
                let shown = entry.is_shown();
                drop(entries);
                self.door().something_changed();
                if shown {
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
        entry.holding = Holding::at_rest(Kept::Memory);
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
        let (folder, paused, mut spec, ending) = {
            let entries = self.entries().lock();
            let entry = entries
                .get(&id)
                .ok_or_else(|| Error::SandboxNotFound(id.clone()))?;
            match (entry.state, entry.paused) {
                (SandboxState::Running, _) => return Ok(Kept::Memory),
                (SandboxState::Paused, Some(paused)) => (
                    entry.folder.clone(),
                    paused,
                    entry.spec.clone(),
                    entry.ending.clone(),
                ),
                (state, _) => return Err(Error::WrongState { id, state }),
            }
        };
        Arc::make_mut(&mut spec).deadline = deadline;
        let restored = if paused.kept == Kept::Memory && want == Kept::Memory {
            self.thaw(&spec, &ending).await?;
            Kept::Memory
        } else {
            self.start_anew(&spec, &folder, paused, &ending).await?;
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
            entry.holding = Holding::ALL;
            Arc::make_mut(&mut entry.spec).deadline = deadline;
            entry.deadline.send_replace(deadline);
            entry.note(
                LogLevel::Info,
                format!("resumed, {} restored", restored.as_str()),
            );
        }
        self.watch_over(&id);
        Ok(restored)
    }

    /// Lets the processes of one that rests in memory go on.
    async fn thaw(self: &Arc<Self>, spec: &SandboxSpec, ending: &CancellationToken) -> Result<()> {
        let _passed = if self.door().counts_cpu() {
            Some(self.admit(spec, Ask::Thaw, ending).await?)
        } else {
            None
        };
        let thawed = self.runtime().resume(&spec.id).await;
        if thawed.is_err() {
            self.let_go(&spec.id, Holding::at_rest(Kept::Memory));
        }
        thawed
    }

    /// Starts processes for one that rests, from its files. On error it goes on resting.
    async fn start_anew(
        self: &Arc<Self>,
        spec: &SandboxSpec,
        folder: &Folder,
        mut paused: Paused,
        ending: &CancellationToken,
    ) -> Result<()> {
        let id = &spec.id;
        let permit = self.admit(spec, Ask::Restart, ending).await?;
        let started = async {
            if paused.kept == Kept::Memory {
                self.runtime().stop(id).await?;
                paused.kept = Kept::Filesystem;
                if let Some(entry) = self.entries().lock().get_mut(id) {
                    entry.paused = Some(paused);
                }
                let writing = folder.clone();
                blocking(move || writing.paused(&paused)).await?;
            }
            let origin = self.origin(spec, Disk::Kept).await?;
            self.runtime()
                .create(spec, origin, &|started| folder.started(started))
                .await
        }
        .await;
        let _set_aside = permit.started();
        let ready = match started {
            Ok(()) => self.get_ready(spec).await,
            Err(error) => {
                self.let_go(id, Holding::at_rest(paused.kept));
                return Err(error);
            }
        };
        if let Err(error) = ready {
            // Its files are worth more than its start command.
            self.runtime().stop(id).await?;
            self.let_go(id, Holding::at_rest(Kept::Filesystem));
            return Err(error);
        }
        Ok(())
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
                    Arc::make_mut(&mut entry.spec).deadline = later;
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
