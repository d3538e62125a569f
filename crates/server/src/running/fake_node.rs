//! A node in memory.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    sync::Arc,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use soulbox_runtime::{
    DynStream, Error, LogEntry, MetricSample, Node, NodeEvent, Result, SandboxStatus, Snapshot,
    Stats, StatusCache,
};
use soulbox_types::{
    EndReason, Limits, NetworkPolicy, PauseMode, SandboxId, SandboxSpec, SandboxState, Secret,
    TemplateId, Tier, UnixMillis,
};
use tokio::{net::TcpStream, sync::broadcast};

pub(super) const ID: &str = "itest";

/// One sandbox whose ports are listeners on loopback.
#[derive(Debug)]
pub(crate) struct FakeNode {
    statuses: StatusCache,
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
        let statuses = StatusCache::default();
        if alive {
            statuses.set(SandboxStatus::new(spec(), SandboxState::Running));
        }
        Arc::new(Self {
            statuses,
            ports: Mutex::default(),
            events: broadcast::channel(8).0,
        })
    }

    pub(super) fn kill(&self) {
        let id = ID.parse().unwrap();
        self.statuses.remove(&id);
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
    fn statuses(&self) -> &StatusCache {
        &self.statuses
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

fn spec() -> SandboxSpec {
    SandboxSpec {
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
    }
}
