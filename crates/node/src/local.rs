//! The node of this process.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    time::Duration,
};

use async_trait::async_trait;
use fs_err as fs;
use parking_lot::Mutex;
use soulbox_runtime::{
    AddedLayer, Disk, DynStream, End, Error, LogEntry, LogLevel, MetricSample, Node, NodeEvent,
    Paused, Result, Runtime, SandboxStatus, Snapshot, Stats, WarmWish,
};
use soulbox_template::{Template, Templates};
use soulbox_types::{
    ENVD_PORT, EndReason, Kept, NetworkPolicy, Purpose, SandboxId, SandboxSpec, SandboxState,
    TemplateId, UnixMillis,
};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use crate::{
    admission::{AdmissionConfig, AdmissionStats, Ask, Door, Resource, SetAside},
    adopt, disk_guard,
    ends::Ends,
    entry::Entry,
    folder::Folder,
    logs, metrics,
    pool::{self, Pool, PoolConfig},
    snapshots::Snapshots,
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
    runtime: Arc<dyn Runtime>,
    snapshots: Snapshots,
    ends: Ends,
    pool: Arc<Pool>,
    door: Arc<Door>,
    /// Held for short, never across an await.
    entries: Mutex<HashMap<SandboxId, Entry>>,
    events: broadcast::Sender<NodeEvent>,
    /// Itself, for the tasks that outlive a call.
    me: Weak<Self>,
}

impl LocalNode {
    /// Adopts what an earlier run left, then serves.
    pub async fn open(config: NodeConfig, runtime: Arc<dyn Runtime>) -> Result<Arc<Self>> {
        fs::create_dir_all(&config.sandboxes_dir)
            .map_err(|e| Error::io("could not make the sandboxes folder", e))?;
        let snapshots = Snapshots::open(config.snapshots_dir.clone())?;
        let ends = Ends::open(config.ends_dir.clone())?;
        let pool = Arc::new(Pool::new(config.pool.clone()));
        let admission = config.admission.clone();
        let door = Arc::new(blocking(move || Ok(Door::open(admission))).await?);
        let node = Arc::new_cyclic(|me| Self {
            config,
            pool,
            door,
            runtime,
            snapshots,
            ends,
            entries: Mutex::default(),
            events: broadcast::Sender::new(EVENTS),
            me: Weak::clone(me),
        });
        adopt::adopt_all(&node).await?;
        tokio::spawn(metrics::sample_all(Arc::downgrade(&node)));
        tokio::spawn(disk_guard::guard(Arc::downgrade(&node)));
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

    pub(crate) fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::clone(&self.runtime)
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

    pub(crate) fn door(&self) -> &Arc<Door> {
        &self.door
    }

    pub fn admission_stats(&self) -> AdmissionStats {
        self.door.stats()
    }

    /// Lets nobody in any more: whoever waits is told at once that the server stops.
    pub fn close_door(&self) {
        self.door.close();
    }

    pub(crate) fn max_sandboxes(&self) -> usize {
        self.config.max_sandboxes
    }

    pub(crate) fn is_ending(&self, id: &SandboxId) -> bool {
        let entries = self.entries.lock();
        entries
            .get(id)
            .is_some_and(|entry| entry.state == SandboxState::Destroying)
    }

    pub(crate) fn sandboxes_dir(&self) -> &Path {
        &self.config.sandboxes_dir
    }

    pub(crate) fn ids(&self) -> Vec<SandboxId> {
        self.entries.lock().keys().cloned().collect()
    }

    pub(crate) fn in_state(&self, state: SandboxState) -> Vec<SandboxId> {
        let entries = self.entries.lock();
        entries
            .values()
            .filter(|e| e.state == state)
            .map(|e| e.id().clone())
            .collect()
    }

    pub(crate) fn insert_paused(&self, entry: Entry) {
        self.entries.lock().insert(entry.id().clone(), entry);
    }

    pub(crate) fn entries(&self) -> &Mutex<HashMap<SandboxId, Entry>> {
        &self.entries
    }

    pub(crate) fn snapshots_of(&self) -> &Snapshots {
        &self.snapshots
    }

    pub(crate) fn ends(&self) -> &Ends {
        &self.ends
    }

    pub(crate) fn tell(&self, event: NodeEvent) {
        // No receiver is fine: the control plane may not have started yet.
        let _none = self.events.send(event);
    }

    pub(crate) fn insert_running(self: &Arc<Self>, entry: Entry) {
        let id = entry.id().clone();
        self.entries.lock().insert(id.clone(), entry);
        self.watch_over(&id);
    }

    pub(crate) async fn sample(&self, id: &SandboxId) {
        match self.runtime.stats(id).await {
            Ok(stats) => {
                if let Some(entry) = self.entries.lock().get_mut(id) {
                    entry.history.add(UnixMillis::now(), stats);
                }
            }
            // It may have ended meanwhile.
            Err(error) => tracing::debug!(sandbox = %id, %error, "no sample"),
        }
    }

    /// Puts the wish on record, in memory: from now on it can be ended. `None`: it is here already.
    fn begin(&self, spec: &SandboxSpec) -> Result<Option<(Folder, CancellationToken)>> {
        let folder = self.folder(&spec.id);
        let mut entries = self.entries.lock();
        if entries.contains_key(&spec.id) {
            return Ok(None);
        }
        if spec.purpose == Purpose::Warm && self.pool.is_closed() {
            return Err(Error::NoCapacity {
                what: "the server stops".to_owned(),
                retry_after: RETRY_PAUSE,
            });
        }
        if let Some(snapshot) = &spec.snapshot
            && self.snapshots.get(snapshot).is_none()
        {
            return Err(Error::TemplateNotFound(snapshot.clone()));
        }
        let tier = self.runtime.tier();
        let entry = Entry::new(spec.clone(), SandboxState::Creating, tier, folder.clone());
        let ending = entry.ending.clone();
        entries.insert(spec.id.clone(), entry);
        Ok(Some((folder, ending)))
    }

    /// It was not let in, and nothing was made. One whose end has begun is finished by whoever
    /// began it.
    fn withdraw(&self, id: &SandboxId) {
        let withdrawn = {
            let mut entries = self.entries.lock();
            if let Some(entry) = entries.get(id) {
                entry.made.send_replace(true);
            }
            let waits = |entry: &Entry| entry.state == SandboxState::Creating;
            match entries.get(id) {
                Some(entry) if waits(entry) => entries.remove(id),
                _ => None,
            }
        };
        if let Some(entry) = withdrawn {
            entry.gone.send_replace(true);
        }
    }

    pub(crate) fn min_free_disk(&self) -> u64 {
        self.config.min_free_disk
    }

    pub(crate) fn check_disk(&self) -> Result<()> {
        let space = self.space()?;
        if space.free < space.reserve {
            return Err(Error::NoCapacity {
                what: format!(
                    "the data folder's disk has only {} MiB free, and {} MiB are kept in reserve",
                    space.free >> 20,
                    space.reserve >> 20
                ),
                retry_after: Duration::from_secs(30),
            });
        }
        Ok(())
    }

    async fn create_in_task(self: Arc<Self>, spec: SandboxSpec) -> Result<SandboxStatus> {
        if spec.purpose == Purpose::User
            && let Some(status) = self.hand_over(&spec).await?
        {
            return Ok(status);
        }
        match self.make(&spec).await? {
            Some(_set_aside) => self.open_up(&spec).await,
            None => self.existing(&spec.id).await,
        }
    }

    /// Starts its processes, when there is room. What it will use is set aside until it is ready.
    /// `None`: it is here already. On error nothing is left.
    pub(crate) async fn make(self: &Arc<Self>, spec: &SandboxSpec) -> Result<Option<SetAside>> {
        let made = self.make_if_room(spec).await;
        if made.is_err() {
            self.runtime.forget_ready(&spec.id);
        }
        made
    }

    async fn make_if_room(self: &Arc<Self>, spec: &SandboxSpec) -> Result<Option<SetAside>> {
        let Some((folder, ending)) = self.begin(spec)? else {
            return Ok(None);
        };
        let ask = match spec.purpose {
            Purpose::Warm => Ask::Warm,
            Purpose::User | Purpose::Build => Ask::New,
        };
        let permit = match self.admit(spec, ask, &ending).await {
            Ok(permit) => permit,
            Err(error) => {
                self.withdraw(&spec.id);
                return Err(error);
            }
        };
        let result = async {
            let (written, wish, starts) = (folder.clone(), spec.clone(), self.starts(spec));
            blocking(move || {
                written.create(&wish)?;
                if starts { written.unready() } else { Ok(()) }
            })
            .await?;
            let origin = self.origin(spec, Disk::Fresh).await?;
            self.runtime
                .create(spec, origin, &|running| folder.started(running))
                .await
        }
        .await;
        if let Some(entry) = self.entries.lock().get(&spec.id) {
            entry.made.send_replace(true);
        }
        let set_aside = permit.started();
        if let Err(error) = result {
            if matches!(error, Error::NoCapacity { .. }) {
                // The only thing that the tier itself can be short of.
                self.door.count_refusal(Resource::Slots);
            }
            self.finish(&spec.id, EndReason::CreateFailed, &error.to_string())
                .await;
            return Err(error);
        }
        Ok(Some(set_aside))
    }

    /// Makes a sandbox whose processes run one that can be used. On error nothing is left.
    pub(crate) async fn open_up(self: &Arc<Self>, spec: &SandboxSpec) -> Result<SandboxStatus> {
        let id = &spec.id;
        if let Err(error) = self.get_ready_on_record(spec).await {
            self.finish(id, EndReason::CreateFailed, &error.to_string())
                .await;
            return Err(error);
        }
        let status = {
            let mut entries = self.entries.lock();
            let entry = entries
                .get_mut(id)
                .ok_or_else(|| Error::SandboxNotFound(id.clone()))?;
            if entry.state != SandboxState::Creating {
                // Ended while it was being made: whoever did that waited for us and cleans up.
                return Err(Error::SandboxNotFound(id.clone()));
            }
            entry.state = SandboxState::Running;
            entry.note(LogLevel::Info, "sandbox started");
            entry.status()
        };
        self.watch_over(id);
        self.learn_what_it_needs(spec);
        Ok(status)
    }

    /// Of a template with a start command: others are all alike.
    fn learn_what_it_needs(self: &Arc<Self>, spec: &SandboxSpec) {
        let has_start = |template: &Template| template.start.is_some();
        if spec.purpose != Purpose::User
            || !self.templates().of(spec).is_some_and(|t| has_start(&t))
        {
            return;
        }
        let (node, spec) = (Arc::clone(self), spec.clone());
        tokio::spawn(async move {
            if let Ok(stats) = node.runtime.stats(&spec.id).await {
                node.learn(&spec, &stats);
            }
        });
    }

    pub(crate) fn learn(&self, spec: &SandboxSpec, stats: &Stats) {
        let used = stats.memory_bytes.saturating_sub(stats.memory_cache_bytes);
        self.door.estimates.learn(spec, used);
    }

    /// A second create of the same sandbox waits for the first.
    async fn existing(&self, id: &SandboxId) -> Result<SandboxStatus> {
        let waited = tokio::time::timeout(DESTROY_LIMIT, async {
            loop {
                let status = self.entries.lock().get(id).map(Entry::status);
                match status {
                    Some(status) if status.state == SandboxState::Destroying => {
                        return Err(Error::SandboxNotFound(id.clone()));
                    }
                    Some(status) if status.state == SandboxState::Creating => {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    Some(status) => return Ok(status),
                    None => return Err(Error::SandboxNotFound(id.clone())),
                }
            }
        });
        waited.await.map_err(|_| Error::Timeout {
            what: "the first create",
            limit: DESTROY_LIMIT,
        })?
    }

    /// Ends a sandbox for good. Several callers may meet here: the first does the work, the
    /// others wait for it.
    pub(crate) async fn finish(self: &Arc<Self>, id: &SandboxId, reason: EndReason, detail: &str) {
        let first = {
            let mut entries = self.entries.lock();
            let Some(entry) = entries.get_mut(id) else {
                return;
            };
            let first = entry.state != SandboxState::Destroying;
            entry.state = SandboxState::Destroying;
            entry.ending.cancel();
            first.then(|| {
                let end = End {
                    spec: Arc::clone(&entry.spec),
                    reason,
                    detail: detail.to_owned(),
                    at: UnixMillis::now(),
                };
                entry.end = Some(end.clone());
                let (made, turn) = (entry.made.subscribe(), Arc::clone(&entry.turn));
                (end, entry.folder.clone(), made, turn)
            })
        };
        let Some((end, folder, mut made, turn)) = first else {
            return;
        };
        // What is still being made cannot be torn down. The runtime bounds its own start.
        let _made = made.wait_for(|made| *made).await.is_ok();
        // A pause or resume under way ends first; it is bounded too.
        let _ours = turn.lock().await;
        tracing::info!(sandbox = %id, reason = reason.as_str(), detail, "ending the sandbox");
        let mut attempt = 0_u32;
        while let Err(error) = self.tear_down(&end, &folder).await {
            attempt += 1;
            // The pause grows to a minute: what fails for long is not mended by haste.
            tracing::error!(sandbox = %id, %error, attempt, "could not end the sandbox; trying again");
            tokio::time::sleep(RETRY_PAUSE * attempt.min(60)).await;
        }
        self.pool.forget(id, reason);
        let purpose = match self.entries.lock().remove(id) {
            Some(entry) => {
                entry.gone.send_replace(true);
                entry.spec.purpose
            }
            None => Purpose::User,
        };
        self.door.something_changed();
        if purpose == Purpose::User {
            self.tell(NodeEvent::Ended {
                id: id.clone(),
                reason,
                detail: detail.to_owned(),
            });
        }
    }

    async fn tear_down(&self, end: &End, folder: &Folder) -> Result<()> {
        let id = &end.spec.id;
        let (marking, mark) = (folder.clone(), end.clone());
        let running = blocking(move || {
            // A full disk must not keep a sandbox alive: the marker is for the next start.
            if let Err(error) = marking.ended(&mark) {
                tracing::warn!(%error, "could not mark the end of a sandbox");
            }
            marking.running()
        })
        .await
        .unwrap_or_default();
        self.runtime.destroy(id, running.as_ref()).await?;
        let (removing, ends, id) = (folder.clone(), self.ends.clone(), id.clone());
        let told = is_told(end);
        blocking(move || {
            if told {
                removing.remove_into(&ends, &id)
            } else {
                removing.remove()
            }
        })
        .await
    }
}

#[async_trait]
impl Node for LocalNode {
    fn claim_warm(&self, wish: &WarmWish) -> Option<SandboxId> {
        self.claim(wish)
    }

    fn ready_id(&self) -> SandboxId {
        self.runtime.ready_id().unwrap_or_else(SandboxId::random)
    }

    fn forget_ready(&self, id: &SandboxId) {
        self.runtime.forget_ready(id);
    }

    fn retire(&self, build: &str) {
        self.retire_build(build);
    }

    async fn export(&self, id: &SandboxId, target: &Path) -> Result<Vec<AddedLayer>> {
        in_task(self.owned()?.export_in_task(id.clone(), target.to_owned())).await
    }

    async fn create(&self, spec: SandboxSpec) -> Result<SandboxStatus> {
        in_task(self.owned()?.create_in_task(spec)).await
    }

    async fn destroy(&self, id: &SandboxId, reason: EndReason) -> Result<()> {
        let Some(mut gone) = self.entries.lock().get(id).map(|e| e.gone.subscribe()) else {
            return Ok(());
        };
        let (node, target) = (self.owned()?, id.clone());
        tokio::spawn(async move { node.finish(&target, reason, "asked for").await });
        match tokio::time::timeout(DESTROY_LIMIT, gone.wait_for(|gone| *gone)).await {
            // The sender is dropped with the entry, which happens last.
            Ok(_) => Ok(()),
            Err(_) => Err(Error::Timeout {
                what: "the sandbox's end",
                limit: DESTROY_LIMIT,
            }),
        }
    }

    async fn unrecorded_ends(&self) -> Vec<End> {
        // Those under way first: what leaves them meanwhile is among the files by then.
        let mut all: HashMap<SandboxId, End> = {
            let entries = self.entries.lock();
            let ends = entries.values().filter_map(|entry| entry.end.clone());
            ends.filter(is_told)
                .map(|end| (end.spec.id.clone(), end))
                .collect()
        };
        let ends = self.ends.clone();
        match blocking(move || ends.list()).await {
            Ok(written) => all.extend(written.into_iter().map(|end| (end.spec.id.clone(), end))),
            Err(error) => tracing::error!(%error, "why sandboxes ended is not known"),
        }
        all.into_values().collect()
    }

    async fn forget_end(&self, id: &SandboxId) {
        let (ends, id) = (self.ends.clone(), id.clone());
        let forgotten = blocking(move || {
            let failed = |e| Error::io("could not remove the file of an end", e);
            ends.forget(&id).map_err(failed)
        });
        if let Err(error) = forgotten.await {
            // The next start finds it again, and that it is on record.
            tracing::warn!(%error, "an end is not forgotten");
        }
    }

    async fn set_network(&self, id: &SandboxId, network: NetworkPolicy) -> Result<()> {
        in_task(self.owned()?.set_network_in_task(id.clone(), network)).await
    }

    async fn pause(&self, id: &SandboxId, keep: Kept) -> Result<()> {
        in_task(self.owned()?.pause_in_task(id.clone(), keep)).await
    }

    async fn resume(&self, id: &SandboxId, deadline: UnixMillis, want: Kept) -> Result<Kept> {
        in_task(self.owned()?.resume_in_task(id.clone(), deadline, want)).await
    }

    async fn snapshot(&self, id: &SandboxId, snapshot: TemplateId) -> Result<Snapshot> {
        in_task(self.owned()?.snapshot_in_task(id.clone(), snapshot)).await
    }

    async fn delete_snapshot(&self, snapshot: &TemplateId) -> Result<()> {
        in_task(self.owned()?.delete_snapshot_in_task(snapshot.clone())).await
    }

    fn snapshots(&self) -> Vec<Snapshot> {
        self.snapshots.list()
    }

    fn paused(&self, id: &SandboxId) -> Option<Paused> {
        let entries = self.entries.lock();
        entries
            .get(id)
            .filter(|e| e.is_shown() && e.state == SandboxState::Paused)
            .and_then(|e| e.paused)
    }

    async fn set_deadline(&self, id: &SandboxId, deadline: UnixMillis) -> Result<()> {
        let folder = {
            let entries = self.entries.lock();
            let entry = running(&entries, id)?;
            entry.folder.clone()
        };
        blocking(move || folder.lease(deadline)).await?;
        let mut entries = self.entries.lock();
        let entry = entries
            .get_mut(id)
            .ok_or_else(|| Error::SandboxNotFound(id.clone()))?;
        Arc::make_mut(&mut entry.spec).deadline = deadline;
        entry.deadline.send_replace(deadline);
        Ok(())
    }

    fn get(&self, id: &SandboxId) -> Option<SandboxStatus> {
        let entries = self.entries.lock();
        entries.get(id).filter(|e| e.is_shown()).map(Entry::status)
    }

    fn list(&self) -> Vec<SandboxStatus> {
        let entries = self.entries.lock();
        let here = entries.values().filter(|e| e.is_shown());
        here.map(Entry::status).collect()
    }

    async fn dial(&self, id: &SandboxId, port: u16) -> Result<DynStream> {
        running(&self.entries.lock(), id)?;
        self.runtime.dial(id, port).await
    }

    async fn stats(&self, id: &SandboxId) -> Result<Stats> {
        running(&self.entries.lock(), id)?;
        self.runtime.stats(id).await
    }

    fn metrics(&self, id: &SandboxId) -> Vec<MetricSample> {
        let entries = self.entries.lock();
        entries
            .get(id)
            .filter(|e| e.is_shown())
            .map(Entry::samples)
            .unwrap_or_default()
    }

    async fn logs(&self, id: &SandboxId) -> Result<Vec<LogEntry>> {
        let (mut entries, token) = {
            let entries = self.entries.lock();
            let here = entries.get(id).filter(|e| e.is_shown());
            let entry = here.ok_or_else(|| Error::SandboxNotFound(id.clone()))?;
            // envd's own part cannot be had while it rests: nobody inside would answer.
            let token =
                (entry.state == SandboxState::Running).then(|| entry.spec.node_token.clone());
            (entry.notes(), token)
        };
        if let Some(token) = token
            && let Ok(stream) = self.runtime.dial(id, ENVD_PORT).await
        {
            entries.extend(logs::from_envd(stream, &token).await);
        }
        entries.sort_by_key(|e| e.at);
        Ok(entries)
    }

    fn events(&self) -> broadcast::Receiver<NodeEvent> {
        self.events.subscribe()
    }
}

/// Whether somebody may ask why it ended: of one that failed to be made, its create was told.
fn is_told(end: &End) -> bool {
    end.spec.purpose == Purpose::User && end.reason != EndReason::CreateFailed
}

pub(crate) fn running<'a>(
    entries: &'a HashMap<SandboxId, Entry>,
    id: &SandboxId,
) -> Result<&'a Entry> {
    match entries.get(id) {
        Some(entry) if entry.state == SandboxState::Running => Ok(entry),
        _ => Err(Error::SandboxNotFound(id.clone())),
    }
}

/// Runs to its end even when the caller goes away.
async fn in_task<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    match tokio::spawn(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::io(
            "a task of the node failed",
            std::io::Error::other(error),
        )),
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
