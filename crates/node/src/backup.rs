//! Sandboxes for a backup: a folder each from which another server brings them back, paused, with
//! their files. Memory is not in it: what was paused in memory goes on here, and comes back from its
//! files there.

use std::{path::Path, sync::Arc};

use soulbox_runtime::{End, Error, LogEntry, LogLevel, Paused, Result, Running};
use soulbox_types::{
    EndReason, PauseMode, Purpose, SandboxId, SandboxSpec, SandboxState, UnixMillis,
};

use crate::{
    LocalNode, ends,
    entry::note_at,
    folder::{self, Folder, Loaded},
    local::blocking,
};

/// What a sandbox was when it was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopiedState {
    Running,
    PausedInMemory,
    PausedOnDisk,
}

impl CopiedState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::PausedInMemory => "paused_in_memory",
            Self::PausedOnDisk => "paused_on_disk",
        }
    }

    fn note(self) -> &'static str {
        match self {
            Self::Running => {
                "restored from a backup that was taken while it ran: its files of that moment are \
                 here, its processes are not"
            }
            Self::PausedInMemory => {
                "restored from a backup: its files are here, what it had in memory is not"
            }
            Self::PausedOnDisk => "restored from a backup, with its files",
        }
    }
}

impl LocalNode {
    /// Users' sandboxes that are there, or are being made.
    pub fn to_back_up(&self) -> Vec<Arc<SandboxSpec>> {
        let entries = self.entries().lock();
        let shown = entries.values().filter(|entry| entry.is_shown());
        shown.map(|entry| Arc::clone(&entry.spec)).collect()
    }

    /// Writes a folder from which a sandbox can be brought back, with its disk as it is at one
    /// moment. It stands still only for as long as a snapshot needs. [`Error::SandboxNotFound`] when
    /// it has ended, or has not begun.
    pub async fn back_up(&self, id: &SandboxId, target: &Path) -> Result<CopiedState> {
        let transition_lock = self.transition_lock(id)?;
        let _ours = transition_lock.lock().await;
        let (spec, state, notes, kept) = {
            let entries = self.entries().lock();
            let entry = entries.get(id).filter(|entry| entry.is_shown());
            let entry = entry.ok_or_else(|| Error::SandboxNotFound(id.clone()))?;
            let state = match (entry.state(), entry.paused) {
                (SandboxState::Running, _) => CopiedState::Running,
                (SandboxState::Paused, Some(paused)) if paused.kept == PauseMode::Memory => {
                    CopiedState::PausedInMemory
                }
                (SandboxState::Paused, _) => CopiedState::PausedOnDisk,
                _ => return Err(Error::SandboxNotFound(id.clone())),
            };
            let paused_at = entry.paused.map(|paused| paused.at);
            (
                Arc::clone(&entry.spec),
                (state, paused_at),
                entry.notes(),
                entry.folder.clone(),
            )
        };
        let envd = match self.answering_envd(id) {
            Some(envd) => envd.log().await,
            None => Vec::new(),
        };
        let copy = Folder::at(target);
        let disk = copy.disk();
        let (state, paused_at) = state;
        blocking(move || {
            let envd = crate::logs::merged([kept.envd_log(), envd]);
            write(&copy, &spec, state, paused_at, notes, &envd)
        })
        .await?;
        self.runtime_of(id)?.capture(id, &disk).await?;
        Ok(state)
    }
}

/// A sandbox as the folder of a server that does not run tells of it.
#[derive(Debug)]
pub struct StoppedSandbox {
    pub spec: SandboxSpec,
    pub state: CopiedState,
    /// Where to find its processes, should some be left.
    pub running: Option<Running>,
    paused_at: Option<UnixMillis>,
    folder: Folder,
}

/// Users' sandboxes that the next start of a server would find, and those that it would find broken.
/// Blocking.
pub fn stopped_sandboxes(dir: &Path) -> Result<(Vec<StoppedSandbox>, Vec<SandboxId>)> {
    let (mut whole, mut broken) = (Vec::new(), Vec::new());
    for id in folder::list(dir)? {
        let folder = Folder::new(dir, &id);
        match folder.load()? {
            Loaded::Whole(found)
                if found.spec.purpose == Purpose::User
                    && found.ended.is_none()
                    && found.warm.is_none()
                    && !found.unready
                    && folder.has_disk()? =>
            {
                let state = match found.paused.map(|paused| paused.kept) {
                    Some(PauseMode::Memory) => CopiedState::PausedInMemory,
                    Some(PauseMode::Filesystem) => CopiedState::PausedOnDisk,
                    None => CopiedState::Running,
                };
                whole.push(StoppedSandbox {
                    spec: found.spec,
                    state,
                    running: found.running,
                    paused_at: found.paused.map(|paused| paused.at),
                    folder,
                });
            }
            Loaded::Damaged(_) => broken.push(id),
            Loaded::Whole(_) | Loaded::Nothing => {}
        }
    }
    Ok((whole, broken))
}

impl StoppedSandbox {
    /// As [`LocalNode::back_up`]. Nothing may write to its disk. Blocking.
    pub fn back_up(&self, target: &Path) -> Result<()> {
        let copy = Folder::at(target);
        let notes = self.folder.log().unwrap_or_default();
        let envd = self.folder.envd_log();
        write(&copy, &self.spec, self.state, self.paused_at, notes, &envd)?;
        soulbox_sparse::copy(&self.folder.disk(), &copy.disk())
            .map_err(|error| Error::io("could not copy the sandbox's disk", error))
    }
}

/// So that whoever restores a backup learns why a sandbox of its database is not in it. Blocking.
pub fn back_up_end(ends_dir: &Path, spec: &Arc<SandboxSpec>, detail: &str) -> Result<()> {
    let end = End {
        spec: Arc::clone(spec),
        reason: EndReason::Lost,
        detail: detail.to_owned(),
        at: UnixMillis::now(),
    };
    let path = ends_dir.join(format!("{}.json", spec.id));
    ends::write(&path, &end).map_err(|error| Error::io("could not write why it ended", error))
}

fn write(
    copy: &Folder,
    spec: &SandboxSpec,
    state: CopiedState,
    paused_at: Option<UnixMillis>,
    mut notes: Vec<LogEntry>,
    envd: &[LogEntry],
) -> Result<()> {
    let now = UnixMillis::now();
    notes.push(note_at(now, LogLevel::Warn, state.note().to_owned()));
    copy.create(spec)?;
    copy.keep_log(&notes)?;
    copy.keep_envd_log(envd)?;
    copy.paused(&Paused {
        kept: PauseMode::Filesystem,
        at: paused_at.unwrap_or(now),
    })
}
