//! A node whose sandboxes exist only in memory, and whose ports are listeners on loopback: enough to
//! see what control plane and proxy do with one.

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use soulbox_runtime::{
    Broken, DynStream, End, Error, LogEntry, MetricSample, Node, NodeEvent, Paused, PoolKey,
    Release, Remedy, Reservation, ReservationSource, ReserveRequest, Reserved, Result,
    SandboxStatus, Snapshot, Stats, StatusCache, Visited,
};
use soulbox_types::{
    EndReason, NetworkPolicy, PauseMode, SandboxId, SandboxSpec, SandboxState, TemplateId,
    TenantId, UnixMillis,
};
use tokio::{
    net::TcpStream,
    sync::{RwLock, broadcast},
};

#[derive(Debug)]
pub struct MemoryNode {
    statuses: StatusCache,
    reports: Mutex<HashMap<SandboxId, Reports>>,
    ports: Mutex<HashMap<u16, SocketAddr>>,
    /// How often all sandboxes were listed.
    pub lists: AtomicUsize,
    snapshots: Mutex<HashMap<TemplateId, Snapshot>>,
    ends: Mutex<Vec<End>>,
    dies_when_asked: Mutex<Option<(SandboxId, Moment)>>,
    failure: Mutex<Option<Error>>,
    warm: Mutex<HashMap<(TemplateId, Option<String>), SandboxId>>,
    requests: Mutex<Vec<ReserveRequest>>,
    reserved: Arc<InUse>,
    events: broadcast::Sender<NodeEvent>,
    broken: Mutex<HashMap<SandboxId, (Broken, SandboxStatus)>>,
    /// Something is kept of which is not known what it stands on.
    pub keeps_unknown: AtomicBool,
    /// Another look at what was left alone finds it whole.
    pub healed: AtomicBool,
    /// Somebody recovers what is to be discarded, a moment before.
    pub recovered_before: AtomicBool,
    after_snapshot: Mutex<Option<Hook>>,
    /// A test that holds it for writing holds up every create.
    pub creating: RwLock<()>,
    pub destroying: RwLock<()>,
    pub creates: AtomicUsize,
}

#[derive(Debug, Default)]
struct InUse(Mutex<HashSet<SandboxId>>);

impl Release for InUse {
    fn release(&self, reserved: &Reserved) {
        self.0.lock().remove(&reserved.id);
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
pub enum Moment {
    Before,
    After,
}

#[derive(Debug, Default)]
struct Reports {
    metrics: Vec<MetricSample>,
    logs: Vec<LogEntry>,
}

impl Default for MemoryNode {
    fn default() -> Self {
        Self {
            statuses: StatusCache::default(),
            reports: Mutex::default(),
            ports: Mutex::default(),
            lists: AtomicUsize::new(0),
            snapshots: Mutex::default(),
            ends: Mutex::default(),
            dies_when_asked: Mutex::default(),
            failure: Mutex::default(),
            warm: Mutex::default(),
            requests: Mutex::default(),
            reserved: Arc::default(),
            events: broadcast::channel(16).0,
            broken: Mutex::default(),
            keeps_unknown: AtomicBool::new(false),
            healed: AtomicBool::new(false),
            recovered_before: AtomicBool::new(false),
            after_snapshot: Mutex::default(),
            creating: RwLock::default(),
            destroying: RwLock::default(),
            creates: AtomicUsize::new(0),
        }
    }
}

impl MemoryNode {
    pub fn fail_next(&self, error: Error) {
        *self.failure.lock() = Some(error);
    }

    /// As if a start had found that it cannot be used.
    pub fn break_it(&self, id: &SandboxId, remedy: Remedy) {
        let status = self.forget(id).unwrap();
        let broken = Broken {
            id: id.clone(),
            spec: Some(Arc::clone(&status.spec)),
            reason: "a test broke it".into(),
            at: UnixMillis::now(),
            disk_bytes: 0,
            remedy,
            unsure: false,
        };
        let mut all = self.broken.lock();
        all.insert(id.clone(), (broken, status));
    }

    fn mend(&self, id: &SandboxId) -> Result<SandboxStatus> {
        let found = self.broken.lock().remove(id);
        let (_, status) = found.ok_or_else(|| Error::SandboxNotFound(id.clone()))?;
        self.statuses.set(status.clone());
        Ok(status)
    }

    fn known(&self, id: &SandboxId) -> Result<SandboxStatus> {
        self.get(id)
            .ok_or_else(|| Error::SandboxNotFound(id.clone()))
    }

    fn running(&self, id: &SandboxId) -> Result<SandboxStatus> {
        let status = self.known(id)?;
        if status.state == SandboxState::Running {
            return Ok(status);
        }
        let (id, state) = (id.clone(), status.state);
        Err(Error::WrongState { id, state })
    }

    /// Right after the next snapshot is taken.
    pub fn after_snapshot(&self, hook: impl FnOnce() + Send + 'static) {
        *self.after_snapshot.lock() = Some(Hook(Box::new(hook)));
    }

    /// One that waits for a user.
    pub fn warm(&self, template: &TemplateId, build: &str, id: &SandboxId) {
        let key = (template.clone(), Some(build.to_owned()));
        self.warm.lock().insert(key, id.clone());
    }

    pub fn requests(&self) -> Vec<ReserveRequest> {
        self.requests.lock().clone()
    }

    /// Reservations that were neither used nor released.
    pub fn reserved(&self) -> HashSet<SandboxId> {
        self.reserved.0.lock().clone()
    }

    /// Ends it as if on its own.
    pub fn end(&self, id: &SandboxId, reason: EndReason, detail: &str) {
        self.forget(id);
        let event = NodeEvent::Ended {
            id: id.clone(),
            reason,
            detail: detail.into(),
        };
        drop(self.events.send(event));
    }

    /// Ends it while no server is there to hear of it.
    pub fn end_unheard(&self, id: &SandboxId, reason: EndReason, detail: &str) {
        let status = self.forget(id).unwrap();
        self.ends.lock().push(End {
            spec: status.spec,
            reason,
            detail: detail.into(),
            at: UnixMillis::now(),
        });
    }

    /// It dies when the node is next asked what has ended, so right after it was listed.
    pub fn die_when_asked(&self, id: &SandboxId, moment: Moment) {
        *self.dies_when_asked.lock() = Some((id.clone(), moment));
    }

    /// Moves them into the past, as if nobody had cared for them since.
    pub fn age_ends(&self) {
        for end in self.ends.lock().iter_mut() {
            end.at = UnixMillis(UnixMillis::now().0 - 600_000);
        }
    }

    pub fn ends(&self) -> usize {
        self.ends.lock().len()
    }

    pub fn add(&self, spec: SandboxSpec) {
        self.statuses
            .set(SandboxStatus::new(spec, SandboxState::Running));
    }

    /// As if its disk were not there.
    pub fn take_snapshots(&self) -> HashMap<TemplateId, Snapshot> {
        std::mem::take(&mut *self.snapshots.lock())
    }

    pub fn put_snapshots(&self, snapshots: HashMap<TemplateId, Snapshot>) {
        self.snapshots.lock().extend(snapshots);
    }

    pub fn forget(&self, id: &SandboxId) -> Option<SandboxStatus> {
        let status = self.get(id);
        self.statuses.remove(id);
        self.reports.lock().remove(id);
        status
    }

    pub fn sample(&self, id: &SandboxId, sample: MetricSample) {
        let mut reports = self.reports.lock();
        reports.entry(id.clone()).or_default().metrics.push(sample);
    }

    pub fn log(&self, id: &SandboxId, entry: LogEntry) {
        let mut reports = self.reports.lock();
        reports.entry(id.clone()).or_default().logs.push(entry);
    }

    /// As if it had been asked for otherwise.
    pub fn change(&self, id: &SandboxId, change: impl FnOnce(&mut SandboxSpec)) {
        let mut status = self.get(id).unwrap();
        change(Arc::make_mut(&mut status.spec));
        self.statuses.set(status);
    }

    /// This port of every sandbox is that listener.
    pub fn open(&self, port: u16, listener: SocketAddr) {
        self.ports.lock().insert(port, listener);
    }
}

#[async_trait]
impl Node for MemoryNode {
    async fn reserve(&self, request: ReserveRequest) -> Result<Reservation> {
        self.requests.lock().push(request.clone());
        let warm_of = |PoolKey {
                           template, build, ..
                       }| { self.warm.lock().remove(&(template, build)) };
        let (id, source) = match request.pool_key.and_then(warm_of) {
            Some(id) => (id, ReservationSource::Warm),
            None => (SandboxId::random(), ReservationSource::Prepared),
        };
        self.reserved.0.lock().insert(id.clone());
        let keeper: Arc<dyn Release> = self.reserved.clone();
        let holds = Duration::from_secs(1);
        Ok(Reservation::new(id, source, holds, Arc::downgrade(&keeper)))
    }

    async fn create(&self, spec: SandboxSpec) -> Result<SandboxStatus> {
        self.creates.fetch_add(1, Ordering::Relaxed);
        let _held = self.creating.read().await;
        if let Some(error) = self.failure.lock().take() {
            return Err(error);
        }
        if let Some(image) = &spec.snapshot
            && !self.snapshots.lock().contains_key(image)
        {
            return Err(Error::TemplateNotFound(image.clone()));
        }
        let id = spec.id.clone();
        self.reserved.0.lock().remove(&id);
        self.add(spec);
        self.get(&id).ok_or(Error::SandboxNotFound(id))
    }

    async fn destroy(&self, id: &SandboxId, reason: EndReason) -> Result<()> {
        let _held = self.destroying.read().await;
        if let Some(error) = self.failure.lock().take() {
            return Err(error);
        }
        if self.get(id).is_some() {
            self.end(id, reason, "");
        }
        Ok(())
    }

    async fn unrecorded_ends(&self) -> Vec<End> {
        let before = self.ends.lock().clone();
        let Some((id, moment)) = self.dies_when_asked.lock().take() else {
            return before;
        };
        self.end_unheard(&id, EndReason::Died, "signal 9");
        self.end(&id, EndReason::Died, "signal 9");
        match moment {
            Moment::Before => self.ends.lock().clone(),
            Moment::After => before,
        }
    }

    async fn forget_end(&self, id: &SandboxId) {
        self.ends.lock().retain(|end| end.spec.id != *id);
    }

    async fn set_deadline(&self, id: &SandboxId, deadline: UnixMillis) -> Result<()> {
        self.known(id)?;
        self.change(id, |spec| spec.deadline = deadline);
        Ok(())
    }

    async fn set_network(&self, id: &SandboxId, network: NetworkPolicy) -> Result<()> {
        self.running(id)?;
        self.change(id, |spec| spec.network = network);
        Ok(())
    }

    async fn pause(&self, id: &SandboxId, keep: PauseMode) -> Result<()> {
        if let Some(error) = self.failure.lock().take() {
            return Err(error);
        }
        let mut status = self.running(id)?;
        status.state = SandboxState::Paused;
        let at = UnixMillis::now();
        status.paused = Some(Paused { kept: keep, at });
        self.statuses.set(status);
        drop(self.events.send(NodeEvent::Paused { id: id.clone() }));
        Ok(())
    }

    async fn resume(
        &self,
        id: &SandboxId,
        deadline: UnixMillis,
        want: PauseMode,
    ) -> Result<PauseMode> {
        let mut status = self.known(id)?;
        let Some(paused) = status.paused.take() else {
            return Ok(PauseMode::Memory);
        };
        status.state = SandboxState::Running;
        Arc::make_mut(&mut status.spec).deadline = deadline;
        self.statuses.set(status);
        let both = paused.kept == PauseMode::Memory && want == PauseMode::Memory;
        Ok(if both {
            PauseMode::Memory
        } else {
            PauseMode::Filesystem
        })
    }

    async fn snapshot(&self, id: &SandboxId, snapshot: TemplateId) -> Result<Snapshot> {
        if let Some(error) = self.failure.lock().take() {
            return Err(error);
        }
        let spec = self.known(id)?.spec;
        let mut snapshots = self.snapshots.lock();
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
        if let Some(Hook(hook)) = self.after_snapshot.lock().take() {
            hook();
        }
        Ok(taken)
    }

    fn keeps_unknown(&self) -> bool {
        self.keeps_unknown.load(Ordering::Relaxed)
    }

    fn broken(&self) -> Vec<Broken> {
        let all = self.broken.lock();
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
        let gone = self.broken.lock().remove(id);
        gone.map(drop)
            .ok_or_else(|| Error::SandboxNotFound(id.clone()))
    }

    async fn delete_snapshot(&self, snapshot: &TemplateId) -> Result<()> {
        let mut snapshots = self.snapshots.lock();
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
        self.snapshots.lock().values().cloned().collect()
    }

    fn statuses(&self) -> &StatusCache {
        &self.statuses
    }

    fn visit(&self, tenant: Option<&TenantId>, each: &mut dyn FnMut(Visited<'_>)) {
        self.lists.fetch_add(1, Ordering::SeqCst);
        self.statuses.visit(tenant, each);
    }

    async fn dial(&self, id: &SandboxId, port: u16) -> Result<DynStream> {
        self.known(id)?;
        let closed = || Error::PortClosed {
            id: id.clone(),
            port,
        };
        let address = self.ports.lock().get(&port).copied().ok_or_else(closed)?;
        let socket = TcpStream::connect(address).await.map_err(|_| closed())?;
        Ok(Box::new(socket))
    }

    async fn stats(&self, _: &SandboxId) -> Result<Stats> {
        Ok(Stats::default())
    }

    fn metrics(&self, id: &SandboxId) -> Vec<MetricSample> {
        let reports = self.reports.lock();
        reports.get(id).map_or(Vec::new(), |r| r.metrics.clone())
    }

    async fn logs(&self, id: &SandboxId) -> Result<Vec<LogEntry>> {
        self.known(id)?;
        let reports = self.reports.lock();
        Ok(reports.get(id).map_or(Vec::new(), |r| r.logs.clone()))
    }

    fn events(&self) -> broadcast::Receiver<NodeEvent> {
        self.events.subscribe()
    }
}
