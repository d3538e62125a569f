//! Pause and resume.
//!
//! What is asked for is on record before anything is done, and what was done is undone when a later
//! step fails. `paused.json` is written before anything is paused, and removed when everything runs
//! again; the new deadline is written before anything runs. A crash in between leaves the sandbox in
//! the state that the files have: adoption freezes what should be paused and thaws what should run.

use std::{sync::Arc, time::Duration};

use soulbox_runtime::{Disk, Error, LogEntry, LogLevel, NodeEvent, Paused, Result};
use soulbox_types::{OnTimeout, PauseMode, SandboxId, SandboxSpec, SandboxState, UnixMillis};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::{
    LocalNode,
    admission::{Allocation, Ask},
    entries::{Entries, EntryMut},
    entry::Entry,
    folder::Folder,
    local::{blocking, running},
    logs::{AnsweringEnvd, keep_said, said_before_a_pause},
    settle::Unsettled,
    supervise::supervise,
};

/// For the news of a death that has happened.
const EXIT_IS_KNOWN: Duration = Duration::from_millis(200);

impl LocalNode {
    pub(crate) async fn pause_in_task(
        self: Arc<Self>,
        id: SandboxId,
        keep: PauseMode,
    ) -> Result<()> {
        let transition_lock = self.transition_lock(&id)?;
        let ours = transition_lock.lock_owned().await;
        let envd = self.answering_envd(&id);
        let folder = self.change(&id, |entry| {
            // From here on nobody dials it, and its end is no death.
            entry.transition(SandboxState::Paused)?;
            entry.leave_alone();
            Ok(entry.folder.clone())
        })?;
        let paused = Paused {
            kept: keep,
            at: UnixMillis::now(),
        };
        let paused_before = self.apply_pause(&id, &folder, paused, envd).await;
        let mut entries = self.entries().lock();
        let mut entry = entry_of(&mut entries, &id)?;
        if entry.state() != SandboxState::Paused {
            // Its end began meanwhile, and waits for us.
            return Err(Error::SandboxNotFound(id));
        }
        match paused_before {
            Ok(said) => {
                entry.paused = Some(paused);
                entry.allocation = Allocation::while_paused(keep);
                entry.note(LogLevel::Info, format!("paused, {} kept", keep.as_str()));
                let shown = entry.is_shown();
                drop(entry);
                drop(entries);
                keep_said(folder, said, ours);
                self.admission().something_changed();
                if shown {
                    self.emit(NodeEvent::Paused { id });
                }
                Ok(())
            }
            Err(error) => {
                // The runtime has let it go on, or it has died of it: the supervisor sees which.
                entry.transition(SandboxState::Running)?;
                entry.note(LogLevel::Error, format!("could not pause: {error}"));
                drop(entry);
                drop(entries);
                self.watch_over(&id);
                Err(error)
            }
        }
    }

    /// What envd had said comes back. On error it runs on, on disk too.
    async fn apply_pause(
        self: &Arc<Self>,
        id: &SandboxId,
        folder: &Folder,
        paused: Paused,
        envd: Option<AnsweringEnvd>,
    ) -> Result<Vec<LogEntry>> {
        let runtime = self.runtime_of(id)?;
        // On record first: were it the other way round, a full disk could leave it frozen, or
        // ended, with nothing that says so.
        let writing = folder.clone();
        let written = blocking(move || writing.paused(&paused));
        // While the disk is waited for: when it is paused nobody inside answers.
        let (written, said) = tokio::join!(written, said_before_a_pause(envd));
        written?;
        let paused_before = match paused.kept {
            PauseMode::Memory => runtime.pause(id).await,
            PauseMode::Filesystem => runtime.stop(id).await,
        };
        let Err(error) = paused_before else {
            return Ok(said);
        };
        // One that takes its time to die has been killed all the same.
        let killed = matches!(error, Error::Timeout { .. });
        if paused.kept == PauseMode::Filesystem
            && (killed || self.has_exited(id, EXIT_IS_KNOWN).await)
        {
            // Its processes are gone, as was asked for, and its files are worth keeping: what could
            // not be cleared away is cleared away before it starts again.
            tracing::warn!(sandbox_id = %id, %error, "it is stopped, but something of it is left");
            self.change(id, |entry| {
                entry.unsettled = true;
                Ok(())
            })?;
            self.settle_later(id, Unsettled::Running(PauseMode::Filesystem));
            return Ok(said);
        }
        let undoing = folder.clone();
        if let Err(undo) = blocking(move || undoing.resumed()).await {
            tracing::error!(sandbox_id = %id, error = %undo, "it runs, but its folder says that it is paused; trying again");
            self.settle_later(id, Unsettled::Record);
        }
        Err(error)
    }

    /// Stops a running sandbox in place without writing anything. A restart of the server lets it
    /// go on: nothing on disk says that it is paused.
    pub(crate) async fn hold(self: &Arc<Self>, id: &SandboxId, reason: &str) -> Result<()> {
        let transition_lock = self.transition_lock(id)?;
        let _ours = transition_lock.lock().await;
        running(&self.entries().lock(), id)?;
        self.runtime_of(id)?.hold(id).await?;
        let shown = self.change(id, |entry| {
            entry.transition(SandboxState::Paused)?;
            entry.paused = Some(Paused {
                kept: PauseMode::Memory,
                at: UnixMillis::now(),
            });
            entry.allocation = Allocation::while_paused(PauseMode::Memory);
            entry.leave_alone();
            entry.note(LogLevel::Error, format!("held: {reason}"));
            Ok(entry.is_shown())
        })?;
        if shown {
            self.emit(NodeEvent::Paused { id: id.clone() });
        }
        Ok(())
    }

    pub(crate) async fn resume_in_task(
        self: Arc<Self>,
        id: SandboxId,
        deadline: UnixMillis,
        want: PauseMode,
    ) -> Result<PauseMode> {
        let transition_lock = self.transition_lock(&id)?;
        let _ours = transition_lock.lock().await;
        let found = {
            let mut entries = self.entries().lock();
            let entry = entry_of(&mut entries, &id)?;
            match (entry.state(), entry.paused) {
                (SandboxState::Running, _) => return Ok(PauseMode::Memory),
                (SandboxState::Paused, Some(paused)) => PausedSandbox {
                    paused,
                    folder: entry.folder.clone(),
                    spec: Arc::clone(&entry.spec),
                    ending: entry.ending.clone(),
                },
                (state, _) => return Err(Error::WrongState { id, state }),
            }
        };
        self.stuck_ends().check()?;
        self.write_lease(&id, &found.folder, deadline).await?;
        let restored = match self.wake(&found, deadline, want).await {
            Ok(restored) => restored,
            Err(error) => {
                // Of no consequence while it is paused, but it should tell what was agreed on.
                let before = found.spec.deadline;
                if let Err(undo) = self.write_lease(&id, &found.folder, before).await {
                    tracing::warn!(sandbox_id = %id, error = %undo, "its folder tells another deadline");
                }
                return Err(error);
            }
        };
        self.change(&id, |entry| {
            // Not if its end began meanwhile: that waits for us, and takes down what we started.
            entry.transition(SandboxState::Running)?;
            entry.paused = None;
            entry.unsettled = false;
            entry.allocation = Allocation::ALL;
            Arc::make_mut(&mut entry.spec).deadline = deadline;
            entry.deadline.send_replace(deadline);
            entry.note(
                LogLevel::Info,
                format!("resumed, {} restored", restored.as_str()),
            );
            Ok(())
        })?;
        self.watch_over(&id);
        Ok(restored)
    }

    /// Lets it run, and then says so on disk. On error it is paused as before, or is on its way to.
    async fn wake(
        self: &Arc<Self>,
        found: &PausedSandbox,
        deadline: UnixMillis,
        want: PauseMode,
    ) -> Result<PauseMode> {
        let mut spec = Arc::clone(&found.spec);
        Arc::make_mut(&mut spec).deadline = deadline;
        let id = &spec.id;
        let in_memory = found.paused.kept == PauseMode::Memory && want == PauseMode::Memory;
        // Of one that was killed while it stood still the files are left.
        let restored = if in_memory && !self.has_exited(id, Duration::ZERO).await {
            self.thaw(&spec, &found.ending).await?;
            PauseMode::Memory
        } else {
            self.start_anew(&spec, found).await?;
            PauseMode::Filesystem
        };
        let removing = found.folder.clone();
        if let Err(error) = blocking(move || removing.resumed()).await {
            // It may be gone and not known to be on the disk.
            let paused = self.change(id, |entry| Ok(entry.paused.unwrap_or(found.paused)));
            if let Ok(paused) = paused
                && let Err(undo) = on_record(&found.folder, paused).await
            {
                tracing::error!(sandbox_id = %id, error = %undo, "it is paused, but its folder does not say so; trying again");
                self.settle_later(id, Unsettled::Rest);
            }
            self.return_to_pause(id, restored).await;
            return Err(error);
        }
        Ok(restored)
    }

    async fn has_exited(&self, id: &SandboxId, within: Duration) -> bool {
        let Ok(runtime) = self.runtime_of(id) else {
            return false;
        };
        timeout(within, runtime.wait(id)).await.is_ok()
    }

    /// Lets the processes of one that is paused in memory go on.
    async fn thaw(self: &Arc<Self>, spec: &SandboxSpec, ending: &CancellationToken) -> Result<()> {
        let _passed = if self.admission().counts_cpu() {
            Some(self.admit(spec, Ask::Thaw, ending).await?)
        } else {
            None
        };
        let thawed = self.runtime(spec.tier)?.resume(&spec.id).await;
        if thawed.is_err() {
            self.return_to_pause(&spec.id, PauseMode::Memory).await;
        }
        thawed
    }

    /// Starts processes for one that is paused, from its files. On error it stays paused.
    async fn start_anew(self: &Arc<Self>, spec: &SandboxSpec, found: &PausedSandbox) -> Result<()> {
        let id = &spec.id;
        let _waiting = self.creates().wait();
        let permit = self.admit(spec, Ask::Restart, &found.ending).await?;
        if let Err(error) = self.clear_away(id, found).await {
            let kept = self.change(id, |entry| Ok(entry.paused.map(|paused| paused.kept)))?;
            self.reallocate(
                id,
                Allocation::while_paused(kept.unwrap_or(PauseMode::Filesystem)),
            );
            return Err(error);
        }
        let started = async {
            let started = |running: &_| found.folder.started(running);
            self.start_processes(spec, Disk::Existing, &started).await
        }
        .await;
        let _capacity = permit.started();
        if let Err(error) = started {
            // Nothing should be left of it, but its disk is not risked on that.
            self.return_to_pause(id, PauseMode::Filesystem).await;
            return Err(error);
        }
        if let Err(error) = self.get_ready(spec).await {
            // Its files are worth more than its start command.
            self.return_to_pause(id, PauseMode::Filesystem).await;
            return Err(error);
        }
        Ok(())
    }

    /// Ends what is left of its processes: from here on its files are all there is.
    async fn clear_away(&self, id: &SandboxId, found: &PausedSandbox) -> Result<()> {
        let unsettled = self.change(id, |entry| Ok(entry.unsettled))?;
        if found.paused.kept == PauseMode::Filesystem && !unsettled {
            // One that a restart of the machine paused has no record of it yet. Without one, a
            // start that is cut short would look like a death, and its files would go.
            return on_record(&found.folder, found.paused).await;
        }
        let stopped = self.runtime_of(id)?.stop(id).await;
        if stopped.is_err() && !self.has_exited(id, EXIT_IS_KNOWN).await {
            return stopped;
        }
        let paused = Paused {
            kept: PauseMode::Filesystem,
            at: found.paused.at,
        };
        self.change(id, |entry| {
            entry.paused = Some(paused);
            entry.unsettled = stopped.is_err();
            Ok(())
        })?;
        // A record that still tells of memory is corrected by whoever finds that it is gone.
        let writing = found.folder.clone();
        let written = blocking(move || writing.paused(&paused)).await;
        stopped.and(written)
    }

    pub(crate) async fn set_deadline_in_task(
        self: Arc<Self>,
        id: SandboxId,
        deadline: UnixMillis,
    ) -> Result<()> {
        let (folder, lease) = {
            let entries = self.entries().lock();
            let entry = running(&entries, &id)?;
            (entry.folder.clone(), Arc::clone(&entry.lease))
        };
        let _ours = lease.lock().await;
        running(&self.entries().lock(), &id)?;
        let written = blocking(move || folder.lease(deadline)).await;
        self.change(&id, |entry| {
            if entry.state() == SandboxState::Destroying {
                // Its folder may be gone by now, which is not what the caller wants to know.
                return Err(Error::SandboxNotFound(entry.id().clone()));
            }
            written?;
            Arc::make_mut(&mut entry.spec).deadline = deadline;
            entry.deadline.send_replace(deadline);
            Ok(())
        })
    }

    /// Of one that does not run: nobody else changes its deadline then.
    async fn write_lease(
        &self,
        id: &SandboxId,
        folder: &Folder,
        deadline: UnixMillis,
    ) -> Result<()> {
        let lease = self.change(id, |entry| Ok(Arc::clone(&entry.lease)))?;
        // Somebody who asked before it was paused may still write.
        let _ours = lease.lock().await;
        let writing = folder.clone();
        blocking(move || writing.lease(deadline)).await
    }

    /// Called by the supervisor when a sandbox's time is over and it asked to be paused then.
    pub(crate) async fn pause_at_deadline(self: &Arc<Self>, id: &SandboxId, keep: PauseMode) {
        match Arc::clone(self).pause_in_task(id.clone(), keep).await {
            Ok(()) | Err(Error::WrongState { .. } | Error::SandboxNotFound(_)) => {}
            Err(error) => {
                // Its state must not be lost because a disk is full: it gets more time.
                tracing::error!(sandbox_id = %id, %error, "could not pause at the deadline; trying again in a minute");
                let later = UnixMillis::now().plus(Duration::from_mins(1));
                if let Some(mut entry) = self.entries().lock().get_mut(id) {
                    Arc::make_mut(&mut entry.spec).deadline = later;
                    entry.deadline.send_replace(later);
                }
                self.watch_over(id);
            }
        }
    }

    pub(crate) fn transition_lock(&self, id: &SandboxId) -> Result<Arc<tokio::sync::Mutex<()>>> {
        let entries = self.entries().lock();
        match entries.get(id) {
            Some(entry) if entry.state() != SandboxState::Destroying => {
                Ok(Arc::clone(&entry.transition_lock))
            }
            _ => Err(Error::SandboxNotFound(id.clone())),
        }
    }

    /// What its deadline means for a sandbox that runs.
    pub(crate) fn on_timeout(&self, id: &SandboxId) -> Option<OnTimeout> {
        running(&self.entries().lock(), id)
            .ok()
            .map(|entry| entry.spec.lifecycle.on_timeout)
    }

    /// Starts a supervisor for a running sandbox, in place of the one before. One that does not run
    /// (any more) gets none: its death would be told as another end.
    pub(crate) fn watch_over(self: &Arc<Self>, id: &SandboxId) {
        if let Some(mut entry) = self.entries().lock().get_mut(id)
            && entry.state() == SandboxState::Running
        {
            let task = supervise(Arc::downgrade(self), id.clone(), entry.deadline.subscribe());
            entry.leave_alone();
            entry.supervisor = Some(tokio::spawn(task).abort_handle());
        }
    }

    pub(crate) fn change<T>(
        &self,
        id: &SandboxId,
        change: impl FnOnce(&mut Entry) -> Result<T>,
    ) -> Result<T> {
        change(&mut *entry_of(&mut self.entries().lock(), id)?)
    }
}

/// A sandbox that somebody wants to wake.
struct PausedSandbox {
    paused: Paused,
    folder: Folder,
    spec: Arc<SandboxSpec>,
    ending: CancellationToken,
}

/// Makes sure that its folder says that it is paused.
pub(crate) async fn on_record(folder: &Folder, paused: Paused) -> Result<()> {
    let folder = folder.clone();
    blocking(move || {
        if folder.is_paused() {
            Ok(())
        } else {
            folder.paused(&paused)
        }
    })
    .await
}

fn entry_of<'a>(entries: &'a mut Entries, id: &SandboxId) -> Result<EntryMut<'a>> {
    entries
        .get_mut(id)
        .ok_or_else(|| Error::SandboxNotFound(id.clone()))
}
