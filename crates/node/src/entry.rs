//! One sandbox in memory.

use std::{collections::VecDeque, sync::Arc};

use soulbox_runtime::{End, LogEntry, LogLevel, MetricSample, Paused, Result, SandboxStatus};
use soulbox_types::{Purpose, SandboxId, SandboxSpec, SandboxState, UnixMillis};
use tokio::{sync::watch, task::AbortHandle};
use tokio_util::sync::CancellationToken;

use crate::{admission::Allocation, folder::Folder, metrics::History, transition};

/// What the node itself says about a sandbox; envd keeps its own, larger log.
const LOG_LINES: usize = 128;
/// The first note of every sandbox.
pub(crate) const STARTED: &str = "sandbox started";

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) folder: Folder,
    pub(crate) spec: Arc<SandboxSpec>,
    /// Changed by [`Self::transition`] only.
    state: SandboxState,
    /// How it is paused, in state Paused.
    pub(crate) paused: Option<Paused>,
    /// What it has of the machine.
    pub(crate) allocation: Allocation,
    /// One change of state at a time: pause, resume and the end wait for each other.
    pub(crate) transition_lock: Arc<tokio::sync::Mutex<()>>,
    /// One change of the deadline at a time, on disk and in memory.
    pub(crate) lease: Arc<tokio::sync::Mutex<()>>,
    /// It is paused, but what was begun to wake it could not be undone: some of it may run.
    pub(crate) unsettled: bool,
    pub(crate) supervisor: Option<AbortHandle>,
    /// Wakes the supervisor when the end of life moves.
    pub(crate) deadline: watch::Sender<UnixMillis>,
    /// Turns true when the runtime has made it, or has failed to.
    pub(crate) made: watch::Sender<bool>,
    /// Cancelled when its end begins.
    pub(crate) ending: CancellationToken,
    /// Why, in state Destroying.
    pub(crate) end: Option<End>,
    /// Turns true when nothing is left of it.
    pub(crate) gone: watch::Sender<bool>,
    pub(crate) history: History,
    log: VecDeque<LogEntry>,
    /// Something was noted that is not on the disk.
    unsaved: bool,
}

impl Entry {
    pub(crate) fn new(
        spec: impl Into<Arc<SandboxSpec>>,
        state: SandboxState,
        folder: Folder,
    ) -> Self {
        let spec = spec.into();
        let deadline = watch::Sender::new(spec.deadline);
        let made = watch::Sender::new(state != SandboxState::Creating);
        let gone = watch::Sender::new(false);
        let (history, log) = (History::default(), VecDeque::new());
        Self {
            folder,
            spec,
            state,
            paused: None,
            allocation: Allocation::in_state(state),
            transition_lock: Arc::default(),
            lease: Arc::default(),
            unsettled: false,
            supervisor: None,
            deadline,
            made,
            ending: CancellationToken::new(),
            end: None,
            gone,
            history,
            log,
            unsaved: false,
        }
    }

    pub(crate) fn id(&self) -> &SandboxId {
        &self.spec.id
    }

    pub(crate) fn state(&self) -> SandboxState {
        self.state
    }

    /// On error it is as before.
    pub(crate) fn transition(&mut self, to: SandboxState) -> Result<()> {
        transition::check(self.id(), self.state, to)?;
        self.state = to;
        Ok(())
    }

    /// Whether anybody outside the node is told of it.
    pub(crate) fn is_shown(&self) -> bool {
        self.spec.purpose == Purpose::User && self.state != SandboxState::Destroying
    }

    /// Made for the pool, and not taken yet.
    pub(crate) fn is_nobodys(&self) -> bool {
        self.spec.purpose == Purpose::Warm
    }

    pub(crate) fn status(&self) -> SandboxStatus {
        SandboxStatus {
            spec: Arc::clone(&self.spec),
            state: self.state,
            paused: self.paused.filter(|_| self.state == SandboxState::Paused),
        }
    }

    /// Ends the supervisor: what happens to the sandbox next is planned.
    pub(crate) fn leave_alone(&mut self) {
        if let Some(supervisor) = self.supervisor.take() {
            supervisor.abort();
        }
    }

    pub(crate) fn samples(&self) -> Vec<MetricSample> {
        self.history.samples()
    }

    pub(crate) fn note(&mut self, level: LogLevel, message: impl Into<String>) {
        // That it started is known from its spec: most sandboxes never need the file.
        self.unsaved |= !self.log.is_empty();
        self.add(note_at(UnixMillis::now(), level, message.into()));
    }

    fn add(&mut self, note: LogEntry) {
        if self.log.len() == LOG_LINES {
            self.log.pop_front();
        }
        self.log.push_back(note);
    }

    /// What an earlier server noted.
    pub(crate) fn recall_notes(&mut self) {
        let kept = self.folder.log().filter(|kept| !kept.is_empty());
        let started = || {
            let message = STARTED.to_owned();
            vec![note_at(self.spec.created_at, LogLevel::Info, message)]
        };
        for note in kept.unwrap_or_else(started) {
            self.add(note);
        }
    }

    pub(crate) fn has_unsaved_notes(&self) -> bool {
        self.unsaved && self.is_shown()
    }

    /// To be written; none if they are.
    pub(crate) fn take_unsaved_notes(&mut self) -> Option<Vec<LogEntry>> {
        let unsaved = self.has_unsaved_notes();
        self.unsaved = false;
        unsaved.then(|| self.notes())
    }

    pub(crate) fn clear_notes(&mut self) {
        self.log.clear();
    }

    pub(crate) fn notes(&self) -> Vec<LogEntry> {
        self.log.iter().cloned().collect()
    }
}

pub(crate) fn note_at(at: UnixMillis, level: LogLevel, message: String) -> LogEntry {
    LogEntry {
        at,
        level,
        logger: "node".to_owned(),
        message,
        fields: std::collections::BTreeMap::new(),
    }
}
