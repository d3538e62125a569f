//! A runtime that keeps its sandboxes in memory, with an envd that only knows `/init`.

#![allow(dead_code, reason = "each test uses its part")]

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use http_body_util::{BodyExt, Empty};
use hyper::{Request, Response, StatusCode, body::Bytes, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use soulbox_node::{
    AdmissionConfig, Gauge, KernelMemory, Level, LocalNode, NodeConfig, PoolConfig, Reading,
    Resource,
};
use soulbox_runtime::{
    AddedLayer, Adopted, DynStream, Error, Exit, NewSandbox, Result, Running, Runtime,
    SocketMemory, Started, Stats,
};
use soulbox_template::{Template, Templates};
use soulbox_types::{
    ENVD_PORT, Limits, NetworkPolicy, Purpose, SandboxId, SandboxSpec, Secret, TemplateId, Tier,
    UnixMillis,
};
use tokio::{
    io::DuplexStream,
    sync::{Notify, watch},
};

pub(crate) const LONG: Duration = Duration::from_hours(1);

/// Sandboxes that outlive the node, as processes outlive the server.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    pub(crate) alive: Mutex<HashMap<SandboxId, watch::Sender<bool>>>,
    /// When set, creates wait for it.
    pub(crate) gate: Mutex<Option<Arc<Notify>>>,
    pub(crate) fail_creates: Mutex<bool>,
    /// Those for the pool only.
    pub(crate) fail_warm: Mutex<bool>,
    /// It was started anew: nothing that ran before does.
    pub(crate) rebooted: Mutex<bool>,
    pub(crate) fail_destroys: Mutex<bool>,
    /// When set, ends wait for it: the kernel does not finish what was killed.
    pub(crate) end_gate: Mutex<Option<Arc<Notify>>>,
    pub(crate) fail_pauses: Mutex<bool>,
    pub(crate) fail_stops: Mutex<Option<Fails>>,
    /// When set, pauses and resumes wait for it after they have done their work.
    pub(crate) rest_gate: Mutex<Option<Arc<Notify>>>,
    /// Starts of a sandbox that ran already: two mounts of one disk.
    pub(crate) second_starts: AtomicU64,
    pub(crate) fail_captures: Mutex<bool>,
    pub(crate) fail_networks: Mutex<bool>,
    pub(crate) networks: Mutex<HashMap<SandboxId, NetworkPolicy>>,
    pub(crate) frozen: Mutex<HashSet<SandboxId>>,
    pub(crate) destroyed: Mutex<Vec<SandboxId>>,
    /// Adoptions fail with this error of the system.
    pub(crate) fail_adoptions: Mutex<Option<i32>>,
    pub(crate) kept_by_reclaim: Mutex<Vec<SandboxId>>,
    pub(crate) limits: Mutex<HashMap<SandboxId, Limits>>,
    /// What envd was told, as it came.
    pub(crate) inits: Mutex<HashMap<SandboxId, serde_json::Value>>,
    pub(crate) fail_inits: Mutex<bool>,
    /// When set, envd does not answer.
    pub(crate) mute: Mutex<bool>,
    pub(crate) memory_bytes: Mutex<u64>,
    /// What sockets hold; `None`: this tier cannot tell.
    pub(crate) sockets: Mutex<HashMap<SandboxId, Option<SocketMemory>>>,
    /// How much these hold is never told.
    pub(crate) slow_sockets: Mutex<HashSet<SandboxId>>,
    pub(crate) slots: Mutex<PreparedSlots>,
    pub(crate) folder: Mutex<PathBuf>,
}

/// By the ids of their sandboxes.
#[derive(Debug, Default)]
pub(crate) struct PreparedSlots {
    pub(crate) ready: Vec<SandboxId>,
    pub(crate) reserved: HashSet<SandboxId>,
    pub(crate) used: Vec<SandboxId>,
    pub(crate) released: Vec<SandboxId>,
}

/// When something fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fails {
    /// With nothing done.
    Before,
    /// With everything done but the last.
    After,
    /// Its processes were told to end, and take longer than anybody waits.
    Slowly,
}

fn no_space() -> Error {
    Error::io("no space", std::io::ErrorKind::StorageFull.into())
}

impl Machine {
    async fn pass_rest_gate(&self) {
        let gate = self.rest_gate.lock().clone();
        if let Some(gate) = gate {
            gate.notified().await;
        }
    }
}

#[derive(Debug)]
pub(crate) struct MemoryRuntime(Arc<Machine>);

#[async_trait]
impl Runtime for MemoryRuntime {
    async fn export(&self, id: &SandboxId, target: &Path) -> Result<Vec<AddedLayer>> {
        self.0.alive.lock().remove(id);
        std::fs::create_dir(target).unwrap();
        Ok(Vec::new())
    }

    async fn set_limits(&self, id: &SandboxId, limits: &Limits) -> Result<()> {
        self.0.limits.lock().insert(id.clone(), *limits);
        Ok(())
    }

    fn tier(&self) -> Tier {
        Tier::Jail
    }

    fn reserve(&self) -> Option<SandboxId> {
        let mut slots = self.0.slots.lock();
        let id = slots.ready.pop()?;
        slots.reserved.insert(id.clone());
        Some(id)
    }

    fn release(&self, id: &SandboxId) {
        let mut slots = self.0.slots.lock();
        if slots.reserved.remove(id) {
            slots.released.push(id.clone());
        }
    }

    async fn create(&self, new: NewSandbox<'_>, started: &Started<'_>) -> Result<()> {
        let spec = new.spec;
        let gate = self.0.gate.lock().clone();
        if let Some(gate) = gate {
            gate.notified().await;
        }
        {
            let mut slots = self.0.slots.lock();
            if slots.reserved.remove(&spec.id) {
                slots.used.push(spec.id.clone());
            }
        }
        let is_warm = spec.purpose == Purpose::Warm;
        if *self.0.fail_creates.lock() || (is_warm && *self.0.fail_warm.lock()) {
            return Err(Error::Start {
                step: "test".into(),
                message: "asked to fail".into(),
            });
        }
        std::fs::write(
            self.0.folder.lock().join(spec.id.as_str()).join("disk.img"),
            "",
        )
        .unwrap();
        started(&Running {
            tier: Tier::Jail,
            record: spec.id.to_string(),
        })?;
        let tree = watch::Sender::new(false);
        let before = self.0.alive.lock().insert(spec.id.clone(), tree);
        if before.is_some() {
            self.0.second_starts.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }

    async fn adopt(&self, spec: &SandboxSpec, _running: &Running) -> Result<Adopted> {
        if let Some(code) = *self.0.fail_adoptions.lock() {
            let error = std::io::Error::from_raw_os_error(code);
            return Err(Error::io("could not look for the sandbox", error));
        }
        let alive = self.0.alive.lock().contains_key(&spec.id);
        Ok(match (*self.0.rebooted.lock(), alive) {
            (true, _) => Adopted::Rebooted,
            (false, true) => Adopted::Alive,
            (false, false) => Adopted::Gone,
        })
    }

    async fn dial(&self, id: &SandboxId, port: u16) -> Result<DynStream> {
        if port != ENVD_PORT {
            return Err(Error::PortClosed {
                id: id.clone(),
                port,
            });
        }
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        tokio::spawn(envd(Arc::clone(&self.0), id.clone(), theirs));
        Ok(Box::new(ours))
    }

    async fn pause(&self, id: &SandboxId) -> Result<()> {
        if *self.0.fail_pauses.lock() {
            return Err(no_space());
        }
        self.0.frozen.lock().insert(id.clone());
        self.0.pass_rest_gate().await;
        Ok(())
    }

    async fn capture(&self, _id: &SandboxId, target: &Path) -> Result<()> {
        std::fs::write(target, "the files of a sandbox").unwrap();
        if *self.0.fail_captures.lock() {
            return Err(no_space());
        }
        Ok(())
    }

    async fn hold(&self, id: &SandboxId) -> Result<()> {
        self.0.frozen.lock().insert(id.clone());
        Ok(())
    }

    async fn stop(&self, id: &SandboxId) -> Result<()> {
        let fails = *self.0.fail_stops.lock();
        match fails {
            Some(Fails::Before) => return Err(no_space()),
            Some(Fails::Slowly) => {
                return Err(Error::Timeout {
                    what: "the end of its processes".into(),
                    limit: Duration::from_secs(1),
                });
            }
            Some(Fails::After) | None => {}
        }
        let tree = self.0.alive.lock().remove(id);
        if let Some(tree) = tree {
            tree.send_replace(true);
        }
        self.0.frozen.lock().remove(id);
        match fails {
            None => Ok(()),
            Some(_) => Err(no_space()),
        }
    }

    async fn set_network(&self, id: &SandboxId, network: &NetworkPolicy) -> Result<()> {
        if *self.0.fail_networks.lock() {
            return Err(Error::SandboxNotFound(id.clone()));
        }
        self.0.networks.lock().insert(id.clone(), network.clone());
        Ok(())
    }

    async fn resume(&self, id: &SandboxId) -> Result<()> {
        self.0.frozen.lock().remove(id);
        self.0.pass_rest_gate().await;
        Ok(())
    }

    async fn stats(&self, _id: &SandboxId) -> Result<Stats> {
        Ok(Stats {
            memory_bytes: *self.0.memory_bytes.lock(),
            ..Stats::default()
        })
    }

    async fn socket_memory(&self, id: &SandboxId) -> Result<SocketMemory> {
        let slow = self.0.slow_sockets.lock().contains(id);
        if slow {
            std::future::pending::<()>().await;
        }
        let held = self.0.sockets.lock().get(id).copied();
        held.unwrap_or(Some(SocketMemory {
            bytes: 0,
            sockets: 0,
            complete: true,
        }))
        .ok_or_else(|| self.unsupported("the memory of its sockets"))
    }

    async fn wait(&self, id: &SandboxId) -> Result<Exit> {
        let death = self.0.alive.lock().get(id).map(watch::Sender::subscribe);
        if let Some(mut death) = death {
            let _died = death.wait_for(|dead| *dead).await.is_ok();
        }
        Ok(Exit {
            description: "signal 9".into(),
        })
    }

    async fn destroy(&self, id: &SandboxId, _running: Option<&Running>) -> Result<()> {
        if *self.0.fail_destroys.lock() {
            return Err(Error::io("destroy", std::io::Error::other("out of files")));
        }
        let gate = self.0.end_gate.lock().clone();
        if let Some(gate) = gate {
            gate.notified().await;
        }
        self.0.alive.lock().remove(id);
        self.0.destroyed.lock().push(id.clone());
        Ok(())
    }

    async fn reclaim(&self, keep: &[SandboxId]) -> Result<()> {
        *self.0.kept_by_reclaim.lock() = keep.to_vec();
        Ok(())
    }
}

async fn envd(machine: Arc<Machine>, id: SandboxId, stream: DuplexStream) {
    let answer = service_fn(|request: Request<hyper::body::Incoming>| {
        let (machine, id) = (Arc::clone(&machine), id.clone());
        async move {
            let known = request.uri().path() == "/init" && !*machine.fail_inits.lock();
            let body = request.into_body().collect().await?.to_bytes();
            let mute = *machine.mute.lock();
            if mute {
                std::future::pending::<()>().await;
            }
            let mut answer = Response::new(Empty::<Bytes>::new());
            *answer.status_mut() = StatusCode::NOT_FOUND;
            if known {
                let told = serde_json::from_slice(&body).unwrap();
                machine.inits.lock().insert(id, told);
                *answer.status_mut() = StatusCode::NO_CONTENT;
            }
            Ok::<_, hyper::Error>(answer)
        }
    });
    let connection = hyper::server::conn::http1::Builder::new();
    let _closed = connection
        .serve_connection(TokioIo::new(stream), answer)
        .await;
}

/// Memory of a machine that nobody really uses.
#[derive(Debug)]
pub(crate) struct FakeMemory {
    pub(crate) used_mib: AtomicU64,
    pub(crate) bound_mib: u64,
    pub(crate) looks: AtomicU64,
    /// Each sandbox uses so much.
    pub(crate) each_mib: u64,
    pub(crate) machine: Arc<Machine>,
    pub(crate) kernel: Mutex<Option<KernelMemory>>,
}

impl FakeMemory {
    pub(crate) fn new(machine: &Arc<Machine>, used_mib: u64, bound_mib: u64) -> Arc<Self> {
        Arc::new(Self {
            used_mib: AtomicU64::new(used_mib),
            bound_mib,
            looks: AtomicU64::new(0),
            each_mib: 0,
            machine: Arc::clone(machine),
            kernel: Mutex::new(None),
        })
    }

    pub(crate) fn set(&self, used_mib: u64) {
        self.used_mib.store(used_mib, Ordering::SeqCst);
    }
}

impl Gauge for FakeMemory {
    fn read(&self) -> Reading {
        self.looks.fetch_add(1, Ordering::SeqCst);
        let sandboxes = self.machine.alive.lock().len() as u64;
        let used = self.used_mib.load(Ordering::SeqCst) + sandboxes * self.each_mib;
        Reading {
            levels: vec![Level {
                resource: Resource::Memory,
                whose: "of the machine",
                used: used << 20,
                bound: self.bound_mib << 20,
            }],
        }
    }

    fn kernel_memory(&self) -> Option<KernelMemory> {
        *self.kernel.lock()
    }
}

/// Of every [`spec`].
const TEMPLATE: &str = "sometemplate";

/// One that adds nothing.
pub(crate) fn template(id: TemplateId) -> Template {
    Template {
        id,
        build_id: "01890a5d-ac96-774b-bcce-b302099a8057".to_owned(),
        aliases: Vec::new(),
        overlays: Vec::new(),
        env: [].into(),
        default_user: "user".to_owned(),
        default_workdir: String::new(),
        limits: Limits::default(),
        start: None,
        created_at: UnixMillis::now(),
    }
}

/// With the template of [`spec`], and without a pool.
pub(crate) fn config(folder: &Path) -> NodeConfig {
    let templates = Templates::open(folder.with_extension("builds")).unwrap();
    templates.set_own(template(TEMPLATE.parse().unwrap()));
    NodeConfig {
        sandboxes_dir: folder.to_owned(),
        snapshots_dir: snapshots_dir(folder),
        ends_dir: ends_dir(folder),
        quarantine_dir: quarantine_dir(folder),
        volumes_dir: folder.join("volumes"),
        max_sandboxes: 100,
        min_free_disk: 0,
        templates: Arc::new(templates),
        ready_limit: Duration::from_secs(5),
        pool: PoolConfig::off(),
        admission: AdmissionConfig {
            wait: Duration::from_millis(200),
            ..AdmissionConfig::default()
        },
    }
}

pub(crate) async fn open(config: NodeConfig, machine: &Arc<Machine>) -> Arc<LocalNode> {
    try_open(config, machine).await.unwrap()
}

pub(crate) async fn try_open(config: NodeConfig, machine: &Arc<Machine>) -> Result<Arc<LocalNode>> {
    config.sandboxes_dir.clone_into(&mut machine.folder.lock());
    LocalNode::open(config, runtime(machine)).await
}

pub(crate) fn runtime(machine: &Arc<Machine>) -> Arc<dyn Runtime> {
    Arc::new(MemoryRuntime(Arc::clone(machine)))
}

/// Beside the sandboxes' folder, with the same life.
pub(crate) fn snapshots_dir(folder: &Path) -> PathBuf {
    folder.with_extension("snapshots")
}

pub(crate) fn ends_dir(folder: &Path) -> PathBuf {
    folder.with_extension("ends")
}

pub(crate) fn quarantine_dir(folder: &Path) -> PathBuf {
    folder.with_extension("quarantine")
}

pub(crate) fn spec(life: Duration) -> SandboxSpec {
    let plain = soulbox_testkit::spec();
    SandboxSpec {
        template: TEMPLATE.parse().unwrap(),
        alias: Some("base".into()),
        env: [("KEY".to_owned(), "value".to_owned())].into(),
        metadata: [("who".to_owned(), "测试".to_owned())].into(),
        access_token: Some(Secret::random()),
        deadline: plain.created_at.plus(life),
        ..plain
    }
}
