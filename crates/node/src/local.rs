//! The node of this process.
//!
//! - `create`, `finish`: how a sandbox begins and ends
//! - `node`: what others ask of it

mod create;
mod finish;
mod node;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Weak, atomic::AtomicU64},
    time::Duration,
};

use parking_lot::Mutex;
use soulbox_runtime::{Error, NodeEvent, Result, Runtime, Runtimes, StatusCache};
use soulbox_template::Templates;
use soulbox_types::{SandboxId, SandboxState, Tier};
use tokio::sync::broadcast;

use crate::{
    admission::{AdmissionConfig, AdmissionController, AdmissionStats, Gauge},
    adopt,
    creates::Creates,
    disk_guard,
    ends::Ends,
    entries::Entries,
    entry::Entry,
    folder::Folder,
    logs::{self, EndedLogs},
    memory_guard, metrics,
    pool::{self, Pool, PoolConfig},
    quarantine::Quarantine,
    snapshots::Snapshots,
    stuck_ends::StuckEnds,
};

/// How long a caller waits for a destruction; it goes on after that.
const DESTROY_LIMIT: Duration = Duration::from_secs(30);
const RETRY_PAUSE: Duration = Duration::from_secs(1);
const EVENTS: usize = 4096;

#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// One folder per sandbox.
    pub sandboxes_dir: PathBuf,
    /// One folder per snapshot; on the same file system, so that blocks can be shared.
    pub snapshots_dir: PathBuf,
    /// One folder per sandbox that cannot be used; on the same file system, so that folders move.
    pub quarantine_dir: PathBuf,
    /// Where the volumes are that sandboxes write to: a folder with an image each.
    pub volumes_dir: PathBuf,
    /// One file per end that is not known to be on record; on the same file system too.
    pub ends_dir: PathBuf,
    pub max_sandboxes: usize,
    /// Creates are refused while the data folder's disk has less free space than this.
    pub min_free_disk: u64,
    /// What sandboxes start from.
    pub templates: Arc<Templates>,
    /// How long a template's start command may take until its ready command passes.
    pub ready_limit: Duration,
    pub pool: PoolConfig,
    pub admission: AdmissionConfig,
}

impl NodeConfig {
    /// Less than what clients wait for a create.
    pub const READY_LIMIT: Duration = Duration::from_secs(45);
}

#[derive(Debug)]
pub struct LocalNode {
    config: NodeConfig,
    runtimes: Runtimes,
    snapshots: Snapshots,
    ends: Ends,
    ended_logs: Arc<EndedLogs>,
    quarantine: Quarantine,
    pool: Arc<Pool>,
    admission: Arc<AdmissionController>,
    creates: Creates,
    stuck_ends: StuckEnds,
    /// Held for short, never across an await.
    entries: Mutex<Entries>,
    statuses: Arc<StatusCache>,
    /// Ended by the memory guard.
    pub(crate) evicted: AtomicU64,
    /// What the kernel killed in sandboxes for lack of memory.
    pub(crate) oom_kills: AtomicU64,
    /// What those held that it is ending now.
    pub(crate) evictions_under_way: Mutex<HashMap<SandboxId, u64>>,
    events: broadcast::Sender<NodeEvent>,
    /// Itself, for the tasks that outlive a call.
    me: Weak<Self>,
}

impl LocalNode {
    /// Adopts what an earlier run left, then serves.
    pub async fn open(config: NodeConfig, runtimes: impl Into<Runtimes>) -> Result<Arc<Self>> {
        let runtimes = runtimes.into();
        soulbox_durable::make_folder(&config.sandboxes_dir, 0o700)
            .map_err(|e| Error::io("could not make the sandboxes folder", e))?;
        let snapshots = Snapshots::open(config.snapshots_dir.clone())?;
        let ends = Ends::open(config.ends_dir.clone())?;
        let ended_logs = Arc::new(EndedLogs::open(config.ends_dir.join("logs"))?);
        let quarantine = Quarantine::open(config.quarantine_dir.clone())?;
        let pool = Arc::new(Pool::new(config.pool.clone()));
        let admission = config.admission.clone();
        let admission = Arc::new(blocking(move || Ok(AdmissionController::open(admission))).await?);
        let statuses = Arc::<StatusCache>::default();
        let node = Arc::new_cyclic(|me| Self {
            config,
            pool,
            admission,
            creates: Creates::default(),
            stuck_ends: StuckEnds::default(),
            runtimes,
            snapshots,
            ends,
            ended_logs,
            quarantine,
            entries: Mutex::new(Entries::new(Arc::clone(&statuses))),
            statuses,
            evicted: AtomicU64::new(0),
            oom_kills: AtomicU64::new(0),
            evictions_under_way: Mutex::default(),
            events: broadcast::Sender::new(EVENTS),
            me: Weak::clone(me),
        });
        adopt::adopt_all(&node).await?;
        tokio::spawn(metrics::sample_all(Arc::downgrade(&node)));
        tokio::spawn(logs::keep_all(Arc::downgrade(&node)));
        tokio::spawn(disk_guard::guard(Arc::downgrade(&node)));
        tokio::spawn(memory_guard::guard(Arc::downgrade(&node)));
        tokio::spawn(pool::keep(Arc::downgrade(&node)));
        Ok(node)
    }

    /// A handle for a task; fails only while the node is being dropped.
    pub(crate) fn owned(&self) -> Result<Arc<Self>> {
        self.me.upgrade().ok_or_else(|| {
            Error::io(
                "the node is shutting down",
                std::io::ErrorKind::NotConnected.into(),
            )
        })
    }

    pub(crate) fn weak(&self) -> Weak<Self> {
        Weak::clone(&self.me)
    }

    pub(crate) fn runtimes(&self) -> &Runtimes {
        &self.runtimes
    }

    pub(crate) fn runtime(&self, tier: Tier) -> Result<Arc<dyn Runtime>> {
        self.runtimes.get(tier).cloned()
    }

    /// That of a sandbox that is here.
    pub(crate) fn runtime_of(&self, id: &SandboxId) -> Result<Arc<dyn Runtime>> {
        let tier = self.entries.lock().get(id).map(|entry| entry.spec.tier);
        self.runtime(tier.ok_or_else(|| Error::SandboxNotFound(id.clone()))?)
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    pub(crate) fn templates(&self) -> &Templates {
        &self.config.templates
    }

    pub(crate) fn ready_limit(&self) -> Duration {
        self.config.ready_limit
    }

    pub(crate) fn folder(&self, id: &SandboxId) -> Folder {
        Folder::new(&self.config.sandboxes_dir, id)
    }

    pub(crate) fn creates(&self) -> &Creates {
        &self.creates
    }

    pub(crate) fn stuck_ends(&self) -> &StuckEnds {
        &self.stuck_ends
    }

    pub(crate) fn gauge(&self) -> &Arc<dyn Gauge> {
        &self.config.admission.gauge
    }

    pub(crate) fn admission(&self) -> &Arc<AdmissionController> {
        &self.admission
    }

    pub fn admission_stats(&self) -> AdmissionStats {
        self.admission.stats()
    }

    /// Lets nobody in any more: whoever waits is told at once that the server stops.
    pub fn close_admission(&self) {
        self.admission.close();
    }

    pub(crate) fn max_sandboxes(&self) -> usize {
        self.config.max_sandboxes
    }

    pub(crate) fn sandboxes_dir(&self) -> &Path {
        &self.config.sandboxes_dir
    }

    pub(crate) fn ids(&self) -> Vec<SandboxId> {
        self.entries
            .lock()
            .values()
            .map(|e| e.id().clone())
            .collect()
    }

    pub(crate) fn in_state(&self, state: SandboxState) -> Vec<SandboxId> {
        let entries = self.entries.lock();
        entries
            .values()
            .filter(|e| e.state() == state)
            .map(|e| e.id().clone())
            .collect()
    }

    pub(crate) fn insert_paused(&self, entry: Entry) {
        self.entries.lock().insert(entry);
    }

    pub(crate) fn entries(&self) -> &Mutex<Entries> {
        &self.entries
    }

    pub(crate) fn snapshots_of(&self) -> &Snapshots {
        &self.snapshots
    }

    pub(crate) fn ends(&self) -> &Ends {
        &self.ends
    }

    pub(crate) fn ended_logs(&self) -> Arc<EndedLogs> {
        Arc::clone(&self.ended_logs)
    }

    pub(crate) fn quarantine(&self) -> &Quarantine {
        &self.quarantine
    }

    pub(crate) fn emit(&self, event: NodeEvent) {
        // No receiver is fine: the control plane may not have started yet.
        let _none = self.events.send(event);
    }

    pub(crate) fn insert_running(self: &Arc<Self>, entry: Entry) {
        let id = entry.id().clone();
        self.entries.lock().insert(entry);
        self.watch_over(&id);
    }

    pub(crate) async fn sample(&self, id: &SandboxId) {
        let stats = async { self.runtime_of(id)?.stats(id).await };
        match stats.await {
            Ok(stats) => self.note_stats(id, stats),
            // It may have ended meanwhile.
            Err(error) => tracing::debug!(sandbox_id = %id, %error, "no sample"),
        }
    }

    pub(crate) fn volumes_dir(&self) -> &Path {
        &self.config.volumes_dir
    }

    pub(crate) fn min_free_disk(&self) -> u64 {
        self.config.min_free_disk
    }

    pub(crate) fn check_disk(&self) -> Result<()> {
        let space = self.space()?;
        if space.free < space.reserve {
            return Err(Error::NoCapacity {
                what: format!(
                    "the data folder's disk has only {} MiB free, and {} MiB are kept in reserve{}",
                    space.free >> 20,
                    space.reserve >> 20,
                    space.broken_too()
                ),
                retry_after: Duration::from_secs(30),
            });
        }
        Ok(())
    }
}

pub(crate) fn running<'a>(entries: &'a Entries, id: &SandboxId) -> Result<&'a Entry> {
    match entries.get(id) {
        Some(entry) if entry.state() == SandboxState::Running => Ok(entry),
        _ => Err(Error::SandboxNotFound(id.clone())),
    }
}

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::io(
            "a task of the node failed",
            std::io::Error::other(error),
        )),
    }
}
