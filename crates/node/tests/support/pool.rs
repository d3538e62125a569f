//! A machine with a warm pool, and servers on it.

#![allow(dead_code, reason = "each test uses its part")]

use std::{
    collections::HashSet,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::FutureExt as _;
use soulbox_node::{LocalNode, NodeConfig, PoolConfig};
use soulbox_runtime::{Error, Node, PoolKey, Reservation, ReservationSource, ReserveRequest};
use soulbox_template::{Template, Templates};
use soulbox_types::{Limits, SandboxId, SandboxSpec, TemplateId, Tier, UnixMillis};
use tokio::{runtime::Runtime, sync::Notify};

use super::machine::{self, LONG, Machine, config, ends_dir, snapshots_dir, spec};

/// A machine, what it keeps on disk, and servers on it one after the other.
pub(crate) struct World {
    folder: tempfile::TempDir,
    pub(crate) machine: Arc<Machine>,
    pub(crate) template: TemplateId,
}

impl Drop for World {
    fn drop(&mut self) {
        for name in [
            self.sandboxes().with_extension("builds"),
            snapshots_dir(&self.sandboxes()),
            ends_dir(&self.sandboxes()),
        ] {
            let _absent = std::fs::remove_dir_all(name);
        }
    }
}

/// One life of the server; dropped like a killed one, with everything that was under way.
pub(crate) struct Server {
    runtime: Option<Runtime>,
    pub(crate) node: Arc<LocalNode>,
    pub(crate) templates: Arc<Templates>,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
    }
}

impl Server {
    pub(crate) fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.as_ref().unwrap().block_on(async {
            let limit = Duration::from_secs(30);
            tokio::time::timeout(limit, work).await.unwrap()
        })
    }

    /// A node in this process has the answer in its memory.
    pub(crate) fn reserve(&self, pool_key: Option<PoolKey>) -> Reservation {
        let reserving = self.node.reserve(ReserveRequest {
            tier: Tier::default(),
            pool_key,
        });
        reserving.now_or_never().unwrap().unwrap()
    }

    pub(crate) fn reserve_warm(&self, key: &PoolKey) -> Option<Reservation> {
        let reserved = self.reserve(Some(key.clone()));
        (reserved.source() == ReservationSource::Warm).then_some(reserved)
    }

    pub(crate) async fn until(&self, what: impl Fn(&LocalNode) -> bool) {
        let start = Instant::now();
        while !what(&self.node) {
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "{:?}",
                self.node.pool_stats()
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("meminfo"), meminfo(8 << 20)).unwrap();
        Self {
            folder,
            machine: Arc::default(),
            template: TemplateId::random(),
        }
    }

    pub(crate) fn sandboxes(&self) -> std::path::PathBuf {
        self.folder.path().join("sandboxes")
    }

    pub(crate) fn meminfo(&self) -> std::path::PathBuf {
        self.folder.path().join("meminfo")
    }

    pub(crate) fn server(&self, size: usize) -> Server {
        self.server_with(size, "current", |config| config)
    }

    pub(crate) fn server_with(
        &self,
        size: usize,
        build: &str,
        change: impl FnOnce(NodeConfig) -> NodeConfig,
    ) -> Server {
        let runtime = Runtime::new().unwrap();
        let mut config = config(&self.sandboxes());
        config.templates.set_own(self.template(build));
        config.pool = PoolConfig {
            max_total: size,
            max_per_template: size,
            memory_bytes: 1 << 30,
            at_once: 2,
            meminfo: self.meminfo(),
            ..PoolConfig::default()
        };
        let config = change(config);
        let templates = Arc::clone(&config.templates);
        let node = runtime.block_on(machine::open(config, &self.machine));
        Server {
            runtime: Some(runtime),
            node,
            templates,
        }
    }

    pub(crate) fn template(&self, build: &str) -> Template {
        Template {
            id: self.template.clone(),
            build_id: build.to_owned(),
            aliases: Vec::new(),
            overlays: Vec::new(),
            env: [("FROM".to_owned(), "template".to_owned())].into(),
            default_user: "user".to_owned(),
            default_workdir: String::new(),
            limits: Limits::default(),
            start: None,
            created_at: UnixMillis::now(),
        }
    }

    pub(crate) fn key(&self) -> PoolKey {
        PoolKey {
            tier: Tier::default(),
            template: self.template.clone(),
            build: None,
            disk_mib: Limits::default().disk_mib,
        }
    }

    pub(crate) fn spec(&self) -> SandboxSpec {
        SandboxSpec {
            template: self.template.clone(),
            ..spec(LONG)
        }
    }

    /// A warm sandbox, if there is one.
    pub(crate) fn reserve_warm(&self, server: &Server) -> Option<Reservation> {
        server.reserve_warm(&self.key())
    }

    /// Asks so often that `count` are worth keeping, and uses none. Returns what it got.
    pub(crate) fn ask_for(&self, server: &Server, count: usize) -> Vec<SandboxId> {
        let ask = |_| self.reserve_warm(server);
        let got: Vec<_> = (0..count.max(2)).filter_map(ask).collect();
        got.iter().map(|reserved| reserved.id().clone()).collect()
    }

    /// Asks until `count` wait.
    pub(crate) async fn fill(&self, server: &Server, count: usize) {
        let got = self.ask_for(server, count);
        let is_left = || got.iter().any(|id| self.alive().contains(id));
        let is_full = |node: &LocalNode| node.pool_stats().ready == count;
        server.until(|node| is_full(node) && !is_left()).await;
    }

    /// One is being made for the pool, and cannot get further before the gate opens.
    pub(crate) async fn half_made(&self, server: &Server) -> (SandboxId, Gate) {
        let gate = self.close_gate();
        self.ask_for(server, 2);
        server.until(|_| folders(&self.sandboxes()) == 1).await;
        let mut found = std::fs::read_dir(self.sandboxes()).unwrap();
        let folder = found.next().unwrap().unwrap();
        server
            .until(|_| folder.path().join("spec.json").exists())
            .await;
        let name = folder.file_name();
        (name.to_str().unwrap().parse().unwrap(), gate)
    }

    pub(crate) fn close_gate(&self) -> Gate {
        let gate = Gate {
            notify: Arc::default(),
            machine: Arc::clone(&self.machine),
        };
        *self.machine.gate.lock() = Some(Arc::clone(&gate.notify));
        gate
    }

    /// As the control plane does.
    pub(crate) async fn create(&self, server: &Server) -> Result<SandboxSpec, Error> {
        let mut spec = self.spec();
        let reserved = server.reserve(Some(self.key()));
        spec.id = reserved.id().clone();
        let status = server.node.create(spec).await?;
        Ok(Arc::unwrap_or_clone(status.spec))
    }

    pub(crate) fn alive(&self) -> HashSet<SandboxId> {
        self.machine.alive.lock().keys().cloned().collect()
    }
}

/// Through which every start of processes passes.
pub(crate) struct Gate {
    notify: Arc<Notify>,
    machine: Arc<Machine>,
}

impl Gate {
    pub(crate) fn open(self) {
        *self.machine.gate.lock() = None;
        self.notify.notify_waiters();
    }
}

pub(crate) fn meminfo(available_kib: u64) -> String {
    format!("MemTotal: 16777216 kB\nMemAvailable: {available_kib} kB\n")
}

pub(crate) fn folders(path: &Path) -> usize {
    std::fs::read_dir(path).unwrap().count()
}
