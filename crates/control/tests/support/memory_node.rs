//! A node whose sandboxes exist only in memory: enough to see what the control plane does with one.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use soulbox_runtime::{
    Broken, DynStream, End, Error, LogEntry, MetricSample, Node, NodeEvent, Paused, PoolKey,
    Release, Remedy, Reservation, ReservationSource, ReserveRequest, Reserved, Result,
    SandboxStatus, Snapshot, Stats, Visited,
};
use soulbox_types::{
    EndReason, NetworkPolicy, PauseMode, SandboxId, SandboxSpec, SandboxState, TemplateId,
    TenantId, UnixMillis,
};
use tokio::sync::{RwLock, broadcast};

#[derive(Debug)]
pub(crate) struct MemoryNode {
    sandboxes: std::sync::Mutex<HashMap<SandboxId, Memory>>,
    snapshots: std::sync::Mutex<HashMap<TemplateId, Snapshot>>,
    ends: std::sync::Mutex<Vec<End>>,
    dies_when_asked: std::sync::Mutex<Option<(SandboxId, Moment)>>,
    failure: std::sync::Mutex<Option<Error>>,
    warm: std::sync::Mutex<HashMap<(TemplateId, Option<String>), SandboxId>>,
    requests: std::sync::Mutex<Vec<ReserveRequest>>,
    reserved: Arc<InUse>,
    events: broadcast::Sender<NodeEvent>,
    broken: std::sync::Mutex<HashMap<SandboxId, (Broken, Memory)>>,
    /// Something is kept of which is not known what it stands on.
    pub(crate) keeps_unknown: AtomicBool,
    /// Another look at what was left alone finds it whole.
    pub(crate) healed: AtomicBool,
    /// Somebody recovers what is to be discarded, a moment before.
    pub(crate) recovered_before: AtomicBool,
    after_snapshot: std::sync::Mutex<Option<Hook>>,
    /// A test that holds it for writing holds up every create.
    pub(crate) creating: RwLock<()>,
    pub(crate) destroying: RwLock<()>,
    pub(crate) creates: AtomicUsize,
}

#[derive(Debug, Default)]
struct InUse(std::sync::Mutex<HashSet<SandboxId>>);

impl Release for InUse {
    fn release(&self, reserved: &Reserved) {
        self.0.lock().unwrap().remove(&reserved.id);
    }
}

/// What a test does at a moment inside the node.
struct Hook(Box<dyn FnOnce() + Send>);

impl std::fmt::Debug for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hook")
    }
}

/// Around the question what has ended.
#[derive(Debug, Clone, Copy)]
#[allow(dead_code, reason = "each test crate uses a part of it")]
pub(crate) enum Moment {
    Before,
    After,
}

#[derive(Debug)]
struct Memory {
    status: SandboxStatus,
    metrics: Vec<MetricSample>,
    logs: Vec<LogEntry>,
    paused: Option<Paused>,
}

impl Default for MemoryNode {
    fn default() -> Self {
        Self {
            sandboxes: std::sync::Mutex::default(),
            snapshots: std::sync::Mutex::default(),
            ends: std::sync::Mutex::default(),
            dies_when_asked: std::sync::Mutex::default(),
            failure: std::sync::Mutex::default(),
            warm: std::sync::Mutex::default(),
            requests: std::sync::Mutex::default(),
            reserved: Arc::default(),
            events: broadcast::channel(16).0,
            broken: std::sync::Mutex::default(),
            keeps_unknown: AtomicBool::new(false),
            healed: AtomicBool::new(false),
            recovered_before: AtomicBool::new(false),
            after_snapshot: std::sync::Mutex::default(),
            creating: RwLock::default(),
            destroying: RwLock::default(),
            creates: AtomicUsize::new(0),
        }
    }
}

#[allow(dead_code, reason = "each test crate uses a part of it")]
impl MemoryNode {
    pub(crate) fn fail_next(&self, error: Error) {
        *self.failure.lock().unwrap() = Some(error);
    }

    /// As if a start had found that it cannot be used.
    pub(crate) fn break_it(&self, id: &SandboxId, remedy: Remedy) {
        let memory = self.sandboxes.lock().unwrap().remove(id).unwrap();
        let broken = Broken {
            id: id.clone(),
            spec: Some(Arc::clone(&memory.status.spec)),
            reason: "a test broke it".into(),
            at: UnixMillis::now(),
            disk_bytes: 0,
            remedy,
            unsure: false,
        };
        let mut all = self.broken.lock().unwrap();
        all.insert(id.clone(), (broken, memory));
    }

    fn mend(&self, id: &SandboxId) -> Result<SandboxStatus> {
        let found = self.broken.lock().unwrap().remove(id);
        let (_, memory) = found.ok_or_else(|| Error::SandboxNotFound(id.clone()))?;
        let status = memory.status.clone();
        self.sandboxes.lock().unwrap().insert(id.clone(), memory);
        Ok(status)
    }

    /// Right after the next snapshot is taken.
    pub(crate) fn after_snapshot(&self, hook: impl FnOnce() + Send + 'static) {
        *self.after_snapshot.lock().unwrap() = Some(Hook(Box::new(hook)));
    }

    /// One that waits for a user.
    pub(crate) fn warm(&self, template: &TemplateId, build: &str, id: &SandboxId) {
        let key = (template.clone(), Some(build.to_owned()));
        self.warm.lock().unwrap().insert(key, id.clone());
    }

    pub(crate) fn requests(&self) -> Vec<ReserveRequest> {
        self.requests.lock().unwrap().clone()
    }

    /// Reservations that were neither used nor released.
    pub(crate) fn reserved(&self) -> HashSet<SandboxId> {
        self.reserved.0.lock().unwrap().clone()
    }

    /// Ends it as if on its own.
    pub(crate) fn end(&self, id: &SandboxId, reason: EndReason, detail: &str) {
        self.sandboxes.lock().unwrap().remove(id);
        let event = NodeEvent::Ended {
            id: id.clone(),
            reason,
            detail: detail.into(),
        };
        drop(self.events.send(event));
    }

    /// Ends it while no server is there to hear of it.
    pub(crate) fn end_unheard(&self, id: &SandboxId, reason: EndReason, detail: &str) {
        let memory = self.sandboxes.lock().unwrap().remove(id).unwrap();
        self.ends.lock().unwrap().push(End {
            spec: memory.status.spec,
            reason,
            detail: detail.into(),
            at: UnixMillis::now(),
        });
    }

    /// It dies when the node is next asked what has ended, so right after it was listed.
    pub(crate) fn die_when_asked(&self, id: &SandboxId, moment: Moment) {
        *self.dies_when_asked.lock().unwrap() = Some((id.clone(), moment));
    }

    /// Moves them into the past, as if nobody had cared for them since.
    pub(crate) fn age_ends(&self) {
        for end in self.ends.lock().unwrap().iter_mut() {
            end.at = UnixMillis(UnixMillis::now().0 - 600_000);
        }
    }

    pub(crate) fn ends(&self) -> usize {
        self.ends.lock().unwrap().len()
    }

    pub(crate) fn add(&self, spec: SandboxSpec) {
        let status = SandboxStatus {
            spec: spec.into(),
            state: SandboxState::Running,
        };
        let id = status.spec.id.clone();
        let memory = Memory {
            status,
            metrics: Vec::new(),
            logs: Vec::new(),
            paused: None,
        };
        self.sandboxes.lock().unwrap().insert(id, memory);
    }

    /// As if its disk were not there.
    pub(crate) fn take_snapshots(&self) -> HashMap<TemplateId, Snapshot> {
        std::mem::take(&mut *self.snapshots.lock().unwrap())
    }

    pub(crate) fn put_snapshots(&self, snapshots: HashMap<TemplateId, Snapshot>) {
        self.snapshots.lock().unwrap().extend(snapshots);
    }

    pub(crate) fn forget(&self, id: &SandboxId) {
        self.sandboxes.lock().unwrap().remove(id);
    }

    pub(crate) fn sample(&self, id: &SandboxId, sample: MetricSample) {
        self.sandboxes
            .lock()
            .unwrap()
            .get_mut(id)
            .unwrap()
            .metrics
            .push(sample);
    }

    pub(crate) fn log(&self, id: &SandboxId, entry: LogEntry) {
        self.sandboxes
            .lock()
            .unwrap()
            .get_mut(id)
            .unwrap()
            .logs
            .push(entry);
    }

    /// Moves the creation into the past, for order and for limits of age.
    pub(crate) fn set_created_at(&self, id: &SandboxId, at: UnixMillis) {
        let mut sandboxes = self.sandboxes.lock().unwrap();
        let memory = sandboxes.get_mut(id).unwrap();
        Arc::make_mut(&mut memory.status.spec).created_at = at;
    }
}

#[async_trait]
impl Node for MemoryNode {
    async fn reserve(&self, request: ReserveRequest) -> Result<Reservation> {
        self.requests.lock().unwrap().push(request.clone());
        let warm_of =
            |PoolKey {
                 template, build, ..
             }| { self.warm.lock().unwrap().remove(&(template, build)) };
        let (id, source) = match request.pool_key.and_then(warm_of) {
            Some(id) => (id, ReservationSource::Warm),
            None => (SandboxId::random(), ReservationSource::Prepared),
        };
        self.reserved.0.lock().unwrap().insert(id.clone());
        let keeper: Arc<dyn Release> = self.reserved.clone();
        let holds = Duration::from_secs(1);
        Ok(Reservation::new(id, source, holds, Arc::downgrade(&keeper)))
    }

    async fn export(
        &self,
        id: &SandboxId,
        _: &std::path::Path,
    ) -> Result<Vec<soulbox_runtime::AddedLayer>> {
        Err(Error::SandboxNotFound(id.clone()))
    }

    async fn create(&self, spec: SandboxSpec) -> Result<SandboxStatus> {
        self.creates.fetch_add(1, Ordering::Relaxed);
        let _held = self.creating.read().await;
        if let Some(error) = self.failure.lock().unwrap().take() {
            return Err(error);
        }
        if let Some(image) = &spec.snapshot
            && !self.snapshots.lock().unwrap().contains_key(image)
        {
            return Err(Error::TemplateNotFound(image.clone()));
        }
        let id = spec.id.clone();
        self.reserved.0.lock().unwrap().remove(&id);
        self.add(spec);
        self.get(&id).ok_or(Error::SandboxNotFound(id))
    }

    async fn destroy(&self, id: &SandboxId, reason: EndReason) -> Result<()> {
        let _held = self.destroying.read().await;
        if let Some(error) = self.failure.lock().unwrap().take() {
            return Err(error);
        }
        let known = self.sandboxes.lock().unwrap().contains_key(id);
        if known {
            self.end(id, reason, "");
        }
        Ok(())
    }

    async fn unrecorded_ends(&self) -> Vec<End> {
        let before = self.ends.lock().unwrap().clone();
        let Some((id, moment)) = self.dies_when_asked.lock().unwrap().take() else {
            return before;
        };
        self.end_unheard(&id, EndReason::Died, "signal 9");
        self.end(&id, EndReason::Died, "signal 9");
        match moment {
            Moment::Before => self.ends.lock().unwrap().clone(),
            Moment::After => before,
        }
    }

    async fn forget_end(&self, id: &SandboxId) {
        self.ends.lock().unwrap().retain(|end| end.spec.id != *id);
    }

    async fn set_deadline(&self, id: &SandboxId, deadline: UnixMillis) -> Result<()> {
        let mut sandboxes = self.sandboxes.lock().unwrap();
        let memory = sandboxes
            .get_mut(id)
            .ok_or_else(|| Error::SandboxNotFound(id.clone()))?;
        Arc::make_mut(&mut memory.status.spec).deadline = deadline;
        Ok(())
    }

    async fn set_network(&self, id: &SandboxId, network: NetworkPolicy) -> Result<()> {
        let mut sandboxes = self.sandboxes.lock().unwrap();
        let memory = sandboxes
            .get_mut(id)
            .ok_or_else(|| Error::SandboxNotFound(id.clone()))?;
        if let Some(state) = Some(memory.status.state).filter(|s| *s != SandboxState::Running) {
            let id = id.clone();
            return Err(Error::WrongState { id, state });
        }
        Arc::make_mut(&mut memory.status.spec).network = network;
        Ok(())
    }

    async fn pause(&self, id: &SandboxId, keep: PauseMode) -> Result<()> {
        if let Some(error) = self.failure.lock().unwrap().take() {
            return Err(error);
        }
        let mut sandboxes = self.sandboxes.lock().unwrap();
        let memory = sandboxes
            .get_mut(id)
            .ok_or_else(|| Error::SandboxNotFound(id.clone()))?;
        if let Some(state) = Some(memory.status.state).filter(|s| *s != SandboxState::Running) {
            let id = id.clone();
            return Err(Error::WrongState { id, state });
        }
        memory.status.state = SandboxState::Paused;
        memory.paused = Some(Paused {
            kept: keep,
            at: UnixMillis::now(),
        });
        drop(self.events.send(NodeEvent::Paused { id: id.clone() }));
        Ok(())
    }

    async fn resume(
        &self,
        id: &SandboxId,
        deadline: UnixMillis,
        want: PauseMode,
    ) -> Result<PauseMode> {
        let mut sandboxes = self.sandboxes.lock().unwrap();
        let memory = sandboxes
            .get_mut(id)
            .ok_or_else(|| Error::SandboxNotFound(id.clone()))?;
        let Some(paused) = memory.paused.take() else {
            return Ok(PauseMode::Memory);
        };
        memory.status.state = SandboxState::Running;
        Arc::make_mut(&mut memory.status.spec).deadline = deadline;
        let both = paused.kept == PauseMode::Memory && want == PauseMode::Memory;
        Ok(if both {
            PauseMode::Memory
        } else {
            PauseMode::Filesystem
        })
    }

    async fn snapshot(&self, id: &SandboxId, snapshot: TemplateId) -> Result<Snapshot> {
        if let Some(error) = self.failure.lock().unwrap().take() {
            return Err(error);
        }
        let missing = || Error::SandboxNotFound(id.clone());
        let spec = self.get(id).ok_or_else(missing)?.spec;
        let mut snapshots = self.snapshots.lock().unwrap();
        let below = spec
            .snapshot
            .as_ref()
            .and_then(|below| snapshots.get(below));
        let taken = Snapshot {
            id: snapshot.clone(),
            source: id.clone(),
            template: spec.template.clone(),
            build: spec.build.clone(),
            tier: spec.tier,
            parents: below.map_or(Vec::new(), |below| {
                let mut parents = vec![below.id.clone()];
                parents.extend(below.parents.clone());
                parents
            }),
            limits: spec.limits,
            created_at: UnixMillis::now(),
            bytes: 0,
            checksum: String::new(),
        };
        snapshots.insert(snapshot, taken.clone());
        if let Some(Hook(hook)) = self.after_snapshot.lock().unwrap().take() {
            hook();
        }
        Ok(taken)
    }

    fn keeps_unknown(&self) -> bool {
        self.keeps_unknown.load(Ordering::Relaxed)
    }

    fn broken(&self) -> Vec<Broken> {
        let all = self.broken.lock().unwrap();
        all.values().map(|(broken, _)| broken.clone()).collect()
    }

    async fn recover(&self, id: &SandboxId) -> Result<SandboxStatus> {
        self.mend(id)
    }

    async fn look_again(&self, id: &SandboxId) -> Result<Option<SandboxStatus>> {
        if !self.healed.load(Ordering::Relaxed) {
            return Ok(None);
        }
        self.mend(id).map(Some)
    }

    async fn discard(&self, id: &SandboxId) -> Result<()> {
        if self.recovered_before.load(Ordering::Relaxed) {
            self.mend(id)?;
        }
        let broken = self.broken().into_iter().find(|broken| broken.id == *id);
        if broken.is_some_and(|broken| broken.remedy == Remedy::Retry) {
            return Err(Error::InUse {
                what: format!("sandbox {id}"),
                users: "its own processes".into(),
            });
        }
        let gone = self.broken.lock().unwrap().remove(id);
        gone.map(drop)
            .ok_or_else(|| Error::SandboxNotFound(id.clone()))
    }

    async fn delete_snapshot(&self, snapshot: &TemplateId) -> Result<()> {
        let mut snapshots = self.snapshots.lock().unwrap();
        let below = snapshots.values().any(|s| s.parents.contains(snapshot));
        let used = self
            .list()
            .iter()
            .any(|s| s.spec.snapshot.as_ref() == Some(snapshot));
        if below || used {
            return Err(Error::InUse {
                what: format!("snapshot {snapshot}"),
                users: "others".into(),
            });
        }
        snapshots.remove(snapshot);
        Ok(())
    }

    fn snapshots(&self) -> Vec<Snapshot> {
        self.snapshots.lock().unwrap().values().cloned().collect()
    }

    fn paused(&self, id: &SandboxId) -> Option<Paused> {
        self.sandboxes.lock().unwrap().get(id)?.paused
    }

    fn get(&self, id: &SandboxId) -> Option<SandboxStatus> {
        self.sandboxes
            .lock()
            .unwrap()
            .get(id)
            .map(|memory| memory.status.clone())
    }

    fn visit(&self, tenant: Option<&TenantId>, each: &mut dyn FnMut(Visited<'_>)) {
        for memory in self.sandboxes.lock().unwrap().values() {
            let SandboxStatus { spec, state } = &memory.status;
            if tenant.is_none_or(|tenant| *tenant == spec.tenant) {
                each(Visited {
                    paused: memory.paused,
                    ..Visited::new(spec, *state)
                });
            }
        }
    }

    async fn dial(&self, id: &SandboxId, port: u16) -> Result<DynStream> {
        Err(Error::PortClosed {
            id: id.clone(),
            port,
        })
    }

    async fn stats(&self, _: &SandboxId) -> Result<Stats> {
        Ok(Stats::default())
    }

    fn metrics(&self, id: &SandboxId) -> Vec<MetricSample> {
        self.sandboxes
            .lock()
            .unwrap()
            .get(id)
            .map_or(Vec::new(), |memory| memory.metrics.clone())
    }

    async fn logs(&self, id: &SandboxId) -> Result<Vec<LogEntry>> {
        let sandboxes = self.sandboxes.lock().unwrap();
        let memory = sandboxes
            .get(id)
            .ok_or_else(|| Error::SandboxNotFound(id.clone()))?;
        Ok(memory.logs.clone())
    }

    fn events(&self) -> broadcast::Receiver<NodeEvent> {
        self.events.subscribe()
    }
}
