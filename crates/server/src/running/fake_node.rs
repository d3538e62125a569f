//! A node in memory.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use parking_lot::Mutex;
use soulbox_runtime::{
    DynStream, Error, LogEntry, MetricSample, Node, NodeEvent, Paused, Result, SandboxStatus,
    Snapshot, Stats, Visited,
};
use soulbox_types::{
    EndReason, Limits, NetworkPolicy, PauseMode, SandboxId, SandboxSpec, SandboxState, Secret,
    TemplateId, TenantId, Tier, UnixMillis,
};
use tokio::{net::TcpStream, sync::broadcast};

pub(super) const ID: &str = "itest";

/// One sandbox whose ports are listeners on loopback.
#[derive(Debug)]
pub(crate) struct FakeNode {
    pub(super) alive: AtomicBool,
    pub(super) ports: Mutex<HashMap<u16, SocketAddr>>,
    events: broadcast::Sender<NodeEvent>,
}

impl FakeNode {
    pub(super) fn with_one_sandbox() -> Arc<Self> {
        Self::new(true)
    }

    pub(crate) fn without_sandbox() -> Arc<Self> {
        Self::new(false)
    }

    fn new(alive: bool) -> Arc<Self> {
        Arc::new(Self {
            alive: AtomicBool::new(alive),
            ports: Mutex::default(),
            events: broadcast::channel(8).0,
        })
    }

    pub(super) fn kill(&self) {
        self.alive.store(false, Ordering::SeqCst);
        let id = ID.parse().unwrap();
        drop(self.events.send(NodeEvent::Ended {
            id,
            reason: EndReason::Killed,
            detail: String::new(),
        }));
    }
}

#[async_trait]
impl Node for FakeNode {
    async fn export(
        &self,
        id: &SandboxId,
        _: &std::path::Path,
    ) -> Result<Vec<soulbox_runtime::AddedLayer>> {
        Err(Error::SandboxNotFound(id.clone()))
    }

    async fn create(&self, spec: SandboxSpec) -> Result<SandboxStatus> {
        Err(Error::SandboxNotFound(spec.id))
    }
    async fn destroy(&self, _id: &SandboxId, _reason: EndReason) -> Result<()> {
        self.kill();
        Ok(())
    }
    async fn set_deadline(&self, id: &SandboxId, _deadline: UnixMillis) -> Result<()> {
        Err(Error::SandboxNotFound(id.clone()))
    }
    async fn set_network(&self, id: &SandboxId, _network: NetworkPolicy) -> Result<()> {
        Err(Error::SandboxNotFound(id.clone()))
    }
    async fn pause(&self, id: &SandboxId, _keep: PauseMode) -> Result<()> {
        Err(Error::SandboxNotFound(id.clone()))
    }
    async fn resume(
        &self,
        id: &SandboxId,
        _deadline: UnixMillis,
        _want: PauseMode,
    ) -> Result<PauseMode> {
        Err(Error::SandboxNotFound(id.clone()))
    }
    async fn snapshot(&self, id: &SandboxId, _snapshot: TemplateId) -> Result<Snapshot> {
        Err(Error::SandboxNotFound(id.clone()))
    }
    async fn delete_snapshot(&self, _snapshot: &TemplateId) -> Result<()> {
        Ok(())
    }
    fn snapshots(&self) -> Vec<Snapshot> {
        Vec::new()
    }
    fn paused(&self, _id: &SandboxId) -> Option<Paused> {
        None
    }
    fn get(&self, id: &SandboxId) -> Option<SandboxStatus> {
        self.list().into_iter().find(|status| status.spec.id == *id)
    }
    fn visit(&self, _tenant: Option<&TenantId>, each: &mut dyn FnMut(Visited<'_>)) {
        if !self.alive.load(Ordering::SeqCst) {
            return;
        }
        let spec = SandboxSpec {
            id: ID.parse().unwrap(),
            tenant: "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap(),
            tier: Tier::default(),
            template: "base".parse().unwrap(),
            build: None,
            purpose: soulbox_types::Purpose::User,
            alias: None,
            limits: Limits::default(),
            env: BTreeMap::new(),
            metadata: BTreeMap::new(),
            network: NetworkPolicy::default(),
            lifecycle: soulbox_types::Lifecycle::default(),
            snapshot: None,
            volumes: Vec::new(),
            access_token: None,
            traffic_token: None,
            node_token: Secret::new("node"),
            created_at: UnixMillis(0),
            deadline: UnixMillis(u64::MAX),
        };
        each(Visited::new(&spec.into(), SandboxState::Running));
    }
    async fn dial(&self, id: &SandboxId, port: u16) -> Result<DynStream> {
        let closed = || Error::PortClosed {
            id: id.clone(),
            port,
        };
        let address = self.ports.lock().get(&port).copied().ok_or_else(closed)?;
        Ok(Box::new(
            TcpStream::connect(address).await.map_err(|_| closed())?,
        ))
    }
    async fn stats(&self, _id: &SandboxId) -> Result<Stats> {
        Ok(Stats::default())
    }
    fn metrics(&self, _id: &SandboxId) -> Vec<MetricSample> {
        Vec::new()
    }
    async fn logs(&self, _id: &SandboxId) -> Result<Vec<LogEntry>> {
        Ok(Vec::new())
    }
    fn events(&self) -> broadcast::Receiver<NodeEvent> {
        self.events.subscribe()
    }
}
