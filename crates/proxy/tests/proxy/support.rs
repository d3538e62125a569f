//! A node in memory whose ports are real listeners on loopback, and a listener in front.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hyper::service::service_fn;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use soulbox_proxy::{ClientConnection, Proxy, ProxyConfig};
use soulbox_runtime::{
    DynStream, Error, LogEntry, MetricSample, Node, NodeEvent, Paused, Result, SandboxStatus,
    Snapshot, Stats, StatusCache, Visited, Waker,
};
use soulbox_types::{
    EndReason, Limits, NetworkPolicy, PauseMode, SandboxId, SandboxSpec, SandboxState, Secret,
    TemplateId, TenantId, Tier, UnixMillis,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::broadcast,
};

pub(crate) const ID: &str = "itest";
pub(crate) const TOKEN: &str = "token-of-itest";

pub(crate) fn id() -> SandboxId {
    ID.parse().unwrap()
}

#[derive(Debug)]
pub(crate) struct FakeNode {
    statuses: StatusCache,
    ports: Mutex<HashMap<u16, SocketAddr>>,
    events: broadcast::Sender<NodeEvent>,
    /// How often all sandboxes were listed.
    pub(crate) lists: AtomicUsize,
}

impl FakeNode {
    pub(crate) fn with_one_sandbox() -> Arc<Self> {
        let spec = SandboxSpec {
            id: id(),
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
            snapshot: None,
            volumes: Vec::new(),
            lifecycle: soulbox_types::Lifecycle {
                auto_resume: true,
                ..soulbox_types::Lifecycle::default()
            },
            access_token: Some(Secret::new(TOKEN)),
            traffic_token: None,
            node_token: Secret::random(),
            created_at: UnixMillis::now(),
            deadline: UnixMillis::now().plus(Duration::from_mins(5)),
        };
        let statuses = StatusCache::default();
        statuses.set(SandboxStatus::new(spec, SandboxState::Running));
        Arc::new(Self {
            statuses,
            ports: Mutex::default(),
            events: broadcast::channel(16).0,
            lists: AtomicUsize::new(0),
        })
    }

    pub(crate) fn open(&self, port: u16, address: SocketAddr) {
        self.ports.lock().unwrap().insert(port, address);
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut SandboxSpec)) {
        self.set(|status| change(Arc::make_mut(&mut status.spec)));
    }

    fn set(&self, change: impl FnOnce(&mut SandboxStatus)) {
        let mut status = self.get(&id()).unwrap();
        change(&mut status);
        self.statuses.set(status);
    }

    pub(crate) fn kill(&self) {
        self.statuses.remove(&id());
        drop(self.events.send(NodeEvent::Ended {
            id: id(),
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
    async fn pause(&self, _id: &SandboxId, keep: PauseMode) -> Result<()> {
        let at = UnixMillis::now();
        self.set(|status| {
            status.state = SandboxState::Paused;
            status.paused = Some(Paused { kept: keep, at });
        });
        drop(self.events.send(NodeEvent::Paused { id: id() }));
        Ok(())
    }
    async fn resume(
        &self,
        _id: &SandboxId,
        deadline: UnixMillis,
        want: PauseMode,
    ) -> Result<PauseMode> {
        self.set(|status| {
            status.state = SandboxState::Running;
            status.paused = None;
            Arc::make_mut(&mut status.spec).deadline = deadline;
        });
        Ok(want)
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
    fn visit(&self, tenant: Option<&TenantId>, each: &mut dyn FnMut(Visited<'_>)) {
        self.lists.fetch_add(1, Ordering::SeqCst);
        self.statuses.visit(tenant, each);
    }
    async fn dial(&self, id: &SandboxId, port: u16) -> Result<DynStream> {
        if self.get(id).is_none() {
            return Err(Error::SandboxNotFound(id.clone()));
        }
        let closed = || Error::PortClosed {
            id: id.clone(),
            port,
        };
        let address = self
            .ports
            .lock()
            .unwrap()
            .get(&port)
            .copied()
            .ok_or_else(closed)?;
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

/// A sandbox, the proxy before it, and the address where the proxy listens.
pub(crate) struct World {
    pub(crate) node: Arc<FakeNode>,
    pub(crate) proxy: Proxy,
    pub(crate) address: SocketAddr,
}

pub(crate) async fn world() -> World {
    world_with(ProxyConfig::new("sbx.localhost")).await
}

pub(crate) async fn world_with(config: ProxyConfig) -> World {
    let node = FakeNode::with_one_sandbox();
    let proxy = Proxy::new(Arc::clone(&node) as Arc<dyn Node>, config);
    world_of(node, proxy).await
}

/// With this waker.
pub(crate) async fn world_with_waker(waker: Arc<dyn Waker>) -> World {
    let node = FakeNode::with_one_sandbox();
    let config = ProxyConfig::new("sbx.localhost");
    let proxy = Proxy::with_waker(Arc::clone(&node) as Arc<dyn Node>, Some(waker), config);
    world_of(node, proxy).await
}

async fn world_of(node: Arc<FakeNode>, proxy: Proxy) -> World {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = proxy.clone();
    tokio::spawn(async move {
        while let Ok((socket, peer)) = listener.accept().await {
            let proxy = serving.clone();
            let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
                let proxy = proxy.clone();
                request.extensions_mut().insert(ClientConnection {
                    address: peer,
                    tls: false,
                });
                async move {
                    assert!(
                        proxy.claims(&request),
                        "every request here is for the proxy"
                    );
                    Ok::<_, std::convert::Infallible>(proxy.handle(request).await)
                }
            });
            tokio::spawn(async move {
                let builder = auto::Builder::new(TokioExecutor::new());
                drop(
                    builder
                        .serve_connection_with_upgrades(TokioIo::new(socket), service)
                        .await,
                );
            });
        }
    });
    World {
        node,
        proxy,
        address,
    }
}

impl World {
    /// A server inside, on `port`, whose connections are handled by `serve`.
    pub(crate) async fn server<F>(&self, port: u16, serve: impl Fn(TcpStream) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        self.node.open(port, listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket));
            }
        });
    }

    /// A server inside that reads a request's head, writes `answer` and closes.
    pub(crate) async fn canned(&self, port: u16, answer: impl Into<Vec<u8>>) {
        let answer = Arc::new(answer.into());
        self.server(port, move |mut socket| {
            let answer = Arc::clone(&answer);
            async move {
                read_head(&mut socket).await;
                drop(socket.write_all(&answer).await);
            }
        })
        .await;
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends a request as written and reads until the proxy closes.
    pub(crate) async fn raw(&self, request: &str) -> String {
        let mut socket = self.connect().await;
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        within(socket.read_to_end(&mut answer)).await.unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    pub(crate) async fn get(&self, host: &str, path: &str) -> String {
        self.raw(&format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        ))
        .await
    }
}

/// Reads up to and including the empty line.
pub(crate) async fn read_head(socket: &mut TcpStream) -> String {
    read_until(socket, "\r\n\r\n").await
}

pub(crate) async fn read_until(socket: &mut TcpStream, end: &str) -> String {
    let mut text = Vec::new();
    while !text.ends_with(end.as_bytes()) {
        match within(socket.read_u8()).await {
            Ok(byte) => text.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Nothing in these tests may take this long.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), future)
        .await
        .expect("in time")
}
