//! What happens to sandboxes: written down, and told to those who want to know.
//!
//! Whoever does something notes it here without waiting. One task writes the notes in order; a
//! reader first waits for the notes made before.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use soulbox_store::{EventFilter, EventRow, SandboxRow, Store};
use soulbox_types::{Chain, EndReason, Limits, SandboxId, SandboxSpec, UnixMillis};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{Control, Result, Tenant, create::row_of, webhooks::Hooks};

/// Notes that wait to be written. More than this only when the disk stands still.
const QUEUE: usize = 16_384;
const BATCH: usize = 256;
const FLUSH_LIMIT: Duration = Duration::from_secs(5);
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// How long events are remembered, and how many at most.
pub(crate) const RETENTION: Duration = Duration::from_hours(7 * 24);
pub(crate) const MOST_EVENTS: u32 = 200_000;

/// Something that happened to a sandbox.
pub type Event = EventRow;

/// The last word of E2B's event types.
pub const EVENT_KINDS: [&str; 10] = [
    "created",
    "updated",
    "paused",
    "resumed",
    "snapshotted",
    "forked",
    "killed",
    // SoulBox's own: it cannot be used, and its files are kept; it came back from them.
    "broken",
    "recovered",
    // And: the kernel killed something in it for lack of memory.
    "oom",
];

#[derive(Debug)]
pub(crate) struct Journal {
    notes: mpsc::Sender<Note>,
    number: AtomicI64,
    runs: Mutex<HashMap<SandboxId, Run>>,
}

#[derive(Debug)]
enum Note {
    Event(Box<EventRow>),
    Flush(oneshot::Sender<()>),
}

/// A sandbox between two pauses, as its events tell it.
#[derive(Debug, Clone)]
struct Run {
    sandbox: SandboxRow,
    /// Not known of one of which only the row is left.
    limits: Option<Limits>,
    build: String,
    execution: String,
    since: UnixMillis,
    paused: bool,
}

impl Journal {
    pub(crate) fn start(store: Store, hooks: Arc<Hooks>, stop: &CancellationToken) -> Self {
        let (notes, inbox) = mpsc::channel(QUEUE);
        let stopped = stop.clone();
        tokio::spawn(async move {
            stopped.run_until_cancelled(keep(store, hooks, inbox)).await;
        });
        Self {
            notes,
            number: AtomicI64::new(0),
            runs: Mutex::default(),
        }
    }

    /// A sandbox that was there before the server started, or was made just now.
    fn learn(&self, spec: &SandboxSpec, build: String, paused: bool) {
        let run = Run {
            paused,
            ..Run::new(row_of(spec), Some(spec.limits), build)
        };
        self.runs.lock().insert(spec.id.clone(), run);
    }

    fn note(&self, run: &Run, kind: &str, data: Map<String, Value>) {
        self.note_at(run, kind, data, UnixMillis::now());
    }

    fn note_at(&self, run: &Run, kind: &str, mut data: Map<String, Value>, at: UnixMillis) {
        let sandbox = &run.sandbox;
        data.insert("sandbox_metadata".to_owned(), json!(sandbox.metadata));
        if matches!(kind, "killed" | "paused") {
            let mut execution = json!({
                "started_at": written(run.since),
                "execution_time": at.0.saturating_sub(run.since.0),
            });
            if let Some(limits) = &run.limits {
                execution["vcpu_count"] = limits.cpu_count().into();
                execution["memory_mb"] = limits.memory_mib.into();
            }
            data.insert("execution".to_owned(), execution);
        }
        let event = EventRow {
            id: Uuid::new_v4().to_string(),
            tenant: sandbox.tenant.clone(),
            sandbox: sandbox.id.clone(),
            execution: run.execution.clone(),
            template: sandbox.template.as_str().to_owned(),
            build: run.build.clone(),
            kind: kind.to_owned(),
            data: Value::Object(data),
            at,
            number: self.number.fetch_add(1, Ordering::Relaxed),
        };
        if self.notes.try_send(Note::Event(Box::new(event))).is_err() {
            tracing::error!(sandbox_id = %sandbox.id, kind, "an event is lost: too many wait");
        }
    }

    fn note_end(&self, run: &Run, reason: EndReason) {
        let mut data = Map::new();
        data.insert("reason".to_owned(), reason.as_str().into());
        self.note(run, "killed", data);
    }

    /// Everything noted so far is written when this returns `true`.
    pub(crate) async fn flush(&self) -> bool {
        let (done, wait) = oneshot::channel();
        let flushed =
            async { self.notes.send(Note::Flush(done)).await.is_ok() && wait.await.is_ok() };
        let flushed = tokio::time::timeout(FLUSH_LIMIT, flushed).await;
        if flushed != Ok(true) {
            tracing::warn!("the journal of events is behind");
        }
        flushed.unwrap_or(false)
    }
}

impl Run {
    fn new(sandbox: SandboxRow, limits: Option<Limits>, build: String) -> Self {
        Self {
            since: sandbox.created_at,
            sandbox,
            limits,
            build,
            execution: Uuid::new_v4().to_string(),
            paused: false,
        }
    }
}

/// What others note.
impl Control {
    pub(crate) fn note_created(&self, spec: &SandboxSpec) {
        self.journal.learn(spec, self.build_of(spec), false);
        self.note_event(&spec.id, "created", Map::new());
    }

    /// `kind` is one of [`EVENT_KINDS`]; `data` is an object.
    pub(crate) fn note_event(&self, id: &SandboxId, kind: &str, data: Map<String, Value>) {
        let run = self.journal.runs.lock().get(id).cloned();
        if let Some(run) = run {
            self.journal.note(&run, kind, data);
        }
    }

    pub(crate) fn note_deadline(&self, id: &SandboxId, deadline: UnixMillis) {
        let mut data = Map::new();
        data.insert("set_timeout".to_owned(), written(deadline).into());
        self.note_event(id, "updated", data);
    }

    pub(crate) fn note_out_of_memory(&self, id: &SandboxId, killed: u64, memory_mib: u32) {
        tracing::info!(sandbox_id = %id, killed, memory_mib, "out of memory in a sandbox");
        let mut data = Map::new();
        data.insert("reason".to_owned(), "out of memory".into());
        data.insert("killed".to_owned(), killed.into());
        data.insert("memory_mb".to_owned(), memory_mib.into());
        self.note_event(id, "oom", data);
    }

    pub(crate) fn note_paused(&self, id: &SandboxId) {
        let mut runs = self.journal.runs.lock();
        let Some(run) = runs.get_mut(id).filter(|run| !run.paused) else {
            return;
        };
        run.paused = true;
        let run = run.clone();
        drop(runs);
        self.journal.note(&run, "paused", Map::new());
    }

    pub(crate) fn note_resumed(&self, id: &SandboxId) {
        let mut runs = self.journal.runs.lock();
        let Some(run) = runs.get_mut(id).filter(|run| run.paused) else {
            return;
        };
        run.paused = false;
        run.since = UnixMillis::now();
        run.execution = Uuid::new_v4().to_string();
        let run = run.clone();
        drop(runs);
        self.journal.note(&run, "resumed", Map::new());
    }

    pub(crate) fn note_ended(&self, id: &SandboxId, reason: EndReason) {
        let run = self.journal.runs.lock().remove(id);
        if let Some(run) = run {
            self.journal.note_end(&run, reason);
        }
    }

    /// One that was made before this server started, of which nobody was told.
    pub(crate) fn note_created_before(&self, spec: &SandboxSpec) {
        let run = Run::new(row_of(spec), Some(spec.limits), self.build_of(spec));
        let at = run.sandbox.created_at;
        self.journal.note_at(&run, "created", Map::new(), at);
    }

    /// An end before this server started. `spec`: as far as the node still knows it.
    pub(crate) fn note_ended_before(
        &self,
        row: SandboxRow,
        spec: Option<&SandboxSpec>,
        reason: EndReason,
    ) {
        let build = spec.map_or_else(|| Uuid::nil().to_string(), |spec| self.build_of(spec));
        let run = Run::new(row, spec.map(|spec| spec.limits), build);
        self.journal.note_end(&run, reason);
    }

    /// One that a server found broken when it started.
    pub(crate) fn note_broken(&self, row: SandboxRow, spec: Option<&SandboxSpec>, reason: &str) {
        let build = spec.map_or_else(|| Uuid::nil().to_string(), |spec| self.build_of(spec));
        let run = Run::new(row, spec.map(|spec| spec.limits), build);
        let mut data = Map::new();
        data.insert("reason".to_owned(), reason.into());
        self.journal.note(&run, "broken", data);
    }

    /// One that was there before this server started has events from now on.
    pub(crate) fn learn(&self, spec: &SandboxSpec) {
        let paused = self.node.paused(&spec.id).is_some();
        self.journal.learn(spec, self.build_of(spec), paused);
    }

    /// Traffic wakes sandboxes without asking us.
    pub(crate) fn notice_woken(&self) {
        let paused: Vec<_> = {
            let runs = self.journal.runs.lock();
            let paused = runs.iter().filter(|(_, run)| run.paused);
            paused.map(|(id, _)| id.clone()).collect()
        };
        for id in paused {
            if self.node.paused(&id).is_none() && self.node.get(&id).is_some() {
                self.note_resumed(&id);
            }
        }
    }

    /// A tenant's events.
    pub async fn events(&self, tenant: &Tenant, filter: &EventFilter) -> Result<Vec<Event>> {
        let _written = self.journal.flush().await;
        Ok(self.store.events(&tenant.id, filter).await?)
    }

    fn build_of(&self, spec: &SandboxSpec) -> String {
        if let Some(build) = &spec.build {
            return build.clone();
        }
        let template = self.catalogue.by_id(spec.template.as_str());
        template.map_or_else(
            || Uuid::nil().to_string(),
            |template| template.info.build_id.clone(),
        )
    }
}

/// What could not be written, for want of room on the disk for example, is tried again.
async fn keep(store: Store, hooks: Arc<Hooks>, mut inbox: mpsc::Receiver<Note>) {
    let mut notes = Vec::with_capacity(BATCH);
    let mut unwritten: Vec<EventRow> = Vec::new();
    loop {
        let next = inbox.recv_many(&mut notes, BATCH);
        if unwritten.is_empty() {
            if next.await == 0 {
                return;
            }
        } else if let Ok(0) = tokio::time::timeout(RETRY_PAUSE, next).await {
            return;
        }
        let mut waiting = Vec::new();
        for note in notes.drain(..) {
            match note {
                Note::Event(event) => unwritten.push(*event),
                Note::Flush(done) => waiting.push(done),
            }
        }
        if !unwritten.is_empty() {
            if let Err(error) = store.insert_events(&unwritten).await {
                tracing::error!(error = %Chain(&error), waiting = unwritten.len(), "could not write events; trying again");
                let beyond = unwritten.len().saturating_sub(QUEUE);
                if beyond > 0 {
                    tracing::error!(lost = beyond, "events are lost: too many wait");
                    unwritten.drain(..beyond);
                }
                // Whoever waits for them learns that they are not written.
                continue;
            }
            for event in unwritten.drain(..) {
                hooks.emit(event);
            }
        }
        for done in waiting {
            // Whoever waited may have given up.
            done.send(()).ok();
        }
    }
}

/// RFC 3339.
pub(crate) fn written(at: UnixMillis) -> String {
    let millis = i64::try_from(at.0).unwrap_or(i64::MAX);
    let at = jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX);
    format!("{at:.3}")
}
