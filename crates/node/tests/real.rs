//! Start commands and waiting sandboxes for real: the jail, its kernel and envd. Needs root.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::{
    collections::HashSet,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use soulbox_jail::Jail;
use soulbox_machine::{Instance, Machine, MachineConfig};
use soulbox_node::{AdmissionConfig, LocalNode, NodeConfig, PoolConfig};
use soulbox_runtime::{Error, Node, PoolKey, Reservation, ReservationSource, ReserveRequest};
use soulbox_template::{Template, Templates};
use soulbox_types::{
    EndReason, Limits, PauseMode, Purpose, SandboxId, SandboxSpec, Secret, StartCommand,
    TemplateId, UnixMillis, guest::OverlaySpec,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PORT: u16 = 8000;

struct World {
    folder: tempfile::TempDir,
    template: Template,
}

struct Server {
    machine: Arc<Machine>,
    node: Arc<LocalNode>,
}

impl Drop for World {
    /// A test that failed half-way must not leave the machine changed.
    fn drop(&mut self) {
        let Ok(text) = fs::read(self.path().join("instance.json")) else {
            return;
        };
        let instance: Instance = serde_json::from_slice(&text).unwrap();
        let clean = move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(Machine::remove_traces(&instance));
        };
        std::thread::spawn(clean).join().unwrap();
    }
}

impl World {
    /// `None`, with the reason printed, where the machine cannot run it.
    fn new(start: &str, ready: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: a jail needs root");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let template = Template {
            start: Some(StartCommand {
                start: start.to_owned(),
                ready: ready.to_owned(),
            }),
            ..template(&folder.path().join("layer"))
        };
        Some(Self { folder, template })
    }

    /// A server that needs `seconds` to come up.
    fn serving(seconds: u32) -> Option<Self> {
        Self::new(
            &format!("sleep {seconds}; cd /tmp; exec python3 -m http.server {PORT}"),
            &format!("echo > /dev/tcp/127.0.0.1/{PORT}"),
        )
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    async fn server(&self, waiting: usize) -> Server {
        let data_dir = self.path().to_owned();
        let templates = Arc::new(Templates::open(data_dir.join("builds")).unwrap());
        templates.set_own(self.template.clone());
        let machine = Machine::open(MachineConfig {
            sandboxes_dir: data_dir.join("sandboxes"),
            volumes_dir: data_dir.join("volumes"),
            programs: soulbox_guest_programs::install(&data_dir.join("bin")).unwrap(),
            data_dir: data_dir.clone(),
            network_range: None,
            open_ranges: Vec::new(),
            pool: 4,
            max_sandboxes: 64,
            disk_sizes: vec![self.template.limits.disk_mib],
        })
        .await
        .unwrap();
        let config = NodeConfig {
            sandboxes_dir: data_dir.join("sandboxes"),
            snapshots_dir: data_dir.join("snapshots"),
            ends_dir: data_dir.join("ends"),
            quarantine_dir: data_dir.join("quarantine"),
            volumes_dir: data_dir.join("volumes"),
            max_sandboxes: 64,
            min_free_disk: 0,
            templates,
            ready_limit: Duration::from_secs(20),
            pool: PoolConfig {
                max_total: waiting,
                max_per_template: waiting,
                ..PoolConfig::default()
            },
            admission: AdmissionConfig::default(),
        };
        let runtime: Arc<dyn soulbox_runtime::Runtime> = Jail::open(Arc::clone(&machine)).unwrap();
        let node = LocalNode::open(config, runtime).await.unwrap();
        Server { machine, node }
    }

    fn spec(&self) -> SandboxSpec {
        SandboxSpec {
            template: self.template.id.clone(),
            limits: self.template.limits,
            env: [("MINE".to_owned(), "yes".to_owned())].into(),
            access_token: Some(Secret::random()),
            ..soulbox_testkit::spec()
        }
    }

    async fn reserve(&self, server: &Server) -> Reservation {
        let pool_key = PoolKey::of(&self.spec());
        let reserving = server.node.reserve(ReserveRequest {
            tier: soulbox_types::Tier::default(),
            pool_key,
        });
        reserving.await.unwrap()
    }

    async fn fill(&self, server: &Server, count: usize) {
        for _ in 0..count {
            drop(self.reserve(server).await);
        }
        let start = Instant::now();
        while server.node.pool_stats().ready < count {
            let stats = server.node.pool_stats();
            assert!(start.elapsed() < Duration::from_mins(1), "{stats:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// As the control plane does; how long it took, and whether one waited.
    async fn create(&self, server: &Server) -> (SandboxSpec, Duration, bool) {
        let start = Instant::now();
        let mut spec = self.spec();
        let reserved = self.reserve(server).await;
        let waited = reserved.source() == ReservationSource::Warm;
        spec.id = reserved.id().clone();
        let status = server.node.create(spec).await.unwrap();
        (Arc::unwrap_or_clone(status.spec), start.elapsed(), waited)
    }
}

impl Server {
    async fn close(self, users: Vec<SandboxId>) {
        for id in users {
            self.node.destroy(&id, EndReason::Killed).await.unwrap();
        }
        self.node.close_pool().await;
        self.machine.close().await;
    }

    /// The status line of an HTTP answer from inside.
    async fn get(&self, id: &SandboxId, port: u16, head: &str) -> String {
        let mut stream = self.node.dial(id, port).await.unwrap();
        let request = format!("GET {head} HTTP/1.0\r\nhost: x\r\n");
        let request = request.replace("\\r\\n", "\r\n") + "\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }
}

/// The smallest root that envd is happy with, over the host's own `/usr`.
fn template(layer: &Path) -> Template {
    for name in ["usr", "etc", "root", "home/user"] {
        fs::create_dir_all(layer.join(name)).unwrap();
    }
    for name in ["bin", "sbin", "lib", "lib64"] {
        symlink(format!("usr/{name}"), layer.join(name)).unwrap();
    }
    let passwd = "root:x:0:0::/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\n";
    fs::write(layer.join("etc/passwd"), passwd).unwrap();
    fs::write(layer.join("etc/group"), "root:x:0:\nuser:x:1000:\n").unwrap();
    let overlay = |target: &str, lower: PathBuf| OverlaySpec {
        target: target.into(),
        lower: vec![lower],
    };
    Template {
        id: TemplateId::random(),
        build_id: "01890a5d-ac96-774b-bcce-b302099a8057".to_owned(),
        aliases: vec!["test".to_owned()],
        overlays: vec![
            overlay("/", layer.to_owned()),
            overlay("/usr", "/usr".into()),
        ],
        env: [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into(),
        default_user: "user".to_owned(),
        default_workdir: String::new(),
        limits: Limits {
            cpu_millis: 2000,
            memory_mib: 128,
            disk_mib: 64,
            pids: 64,
        },
        start: None,
        created_at: UnixMillis::now(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_is_handed_out_when_its_ready_command_has_passed() {
    let Some(world) = World::serving(1) else {
        return;
    };
    let server = world.server(0).await;
    let spec = server.node.create(world.spec()).await.unwrap().spec;
    assert!(server.get(&spec.id, PORT, "/").await.contains("200 OK"));

    server
        .node
        .pause(&spec.id, PauseMode::Filesystem)
        .await
        .unwrap();
    let later = UnixMillis::now().plus(Duration::from_mins(1));
    let resumed = server.node.resume(&spec.id, later, PauseMode::Memory).await;
    assert_eq!(resumed.unwrap(), PauseMode::Filesystem);
    assert!(server.get(&spec.id, PORT, "/").await.contains("200 OK"));

    // A build's step has nothing to start yet.
    let mut step = world.spec();
    step.purpose = Purpose::Build;
    server.node.create(step.clone()).await.unwrap();
    assert!(matches!(
        server.node.dial(&step.id, PORT).await,
        Err(Error::PortClosed { .. })
    ));
    server.close(vec![spec.id.clone(), step.id]).await;
}

async fn failed_start(world: &World) -> (String, String) {
    let server = world.server(0).await;
    let error = server.node.create(world.spec()).await.unwrap_err();
    assert!(server.node.list().is_empty());
    assert_eq!(
        fs::read_dir(world.path().join("sandboxes"))
            .unwrap()
            .count(),
        0
    );
    server.close(Vec::new()).await;
    match error {
        Error::Start { step, message } => (step, message),
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_command_that_fails_is_told_with_its_last_words() {
    let Some(world) = World::new("echo it is broken >&2; exit 3", "false") else {
        return;
    };
    let (step, message) = failed_start(&world).await;
    assert_eq!(step, "start command");
    assert!(message.contains("exit status 3"), "{message}");
    assert!(message.contains("it is broken"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ready_command_that_never_passes_has_an_end() {
    let Some(world) = World::new("exit 0", "echo not yet; exit 1") else {
        return;
    };
    let (step, message) = failed_start(&world).await;
    assert_eq!(step, "ready command");
    assert!(message.contains("within 20 s"), "{message}");
    assert!(message.contains("exit status 1: not yet"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_ended_while_it_gets_ready_ends_at_once() {
    let Some(world) = World::new("sleep 100", "sleep 100") else {
        return;
    };
    let server = world.server(0).await;
    let spec = world.spec();
    let creating = tokio::spawn({
        let (node, spec) = (Arc::clone(&server.node), spec.clone());
        async move { node.create(spec).await }
    });
    let running = world.path().join("sandboxes").join(spec.id.as_str());
    while !running.join("running.json").exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let start = Instant::now();
    let killed = server.node.destroy(&spec.id, EndReason::Killed).await;
    killed.unwrap();
    assert!(matches!(
        creating.await.unwrap(),
        Err(Error::SandboxNotFound(_))
    ));
    assert!(start.elapsed() < Duration::from_secs(10));
    server.close(Vec::new()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn those_that_wait_serve_in_milliseconds_and_the_rest_of_a_burst_is_made() {
    let Some(world) = World::serving(2) else {
        return;
    };
    let server = world.server(3).await;
    let (_, cold, _) = world.create(&server).await;
    world.fill(&server, 3).await;
    let creates = (0..8).map(|_| world.create(&server));
    let created = futures_util::future::join_all(creates).await;
    let ids: HashSet<_> = created.iter().map(|(spec, ..)| spec.id.clone()).collect();
    assert_eq!(ids.len(), 8);
    // Others may take over one that is being made, which takes a part of the time.
    let mut from_pool: Vec<_> = created.iter().filter(|c| c.2).map(|c| c.1).collect();
    from_pool.sort_unstable();
    println!("cold {cold:?}, from the pool in a burst of 8 {from_pool:?}");
    assert!(from_pool.len() >= 3);
    assert!(from_pool[2] < cold / 4, "{from_pool:?}");
    for (spec, _, _) in &created {
        assert!(server.get(&spec.id, PORT, "/").await.contains("200 OK"));
        let token = spec.access_token.as_ref().unwrap().expose();
        let head = format!("/envs HTTP/1.0\\r\\nx-access-token: {token}\\r\\nx:");
        let told = server.get(&spec.id, 49983, &head).await;
        assert!(told.contains(r#""MINE":"yes""#), "{told}");
    }
    let users = server
        .node
        .list()
        .into_iter()
        .map(|s| s.spec.id.clone())
        .collect();
    server.close(users).await;
    assert_eq!(
        fs::read_dir(world.path().join("sandboxes"))
            .unwrap()
            .count(),
        0
    );
}

#[test]
fn those_that_wait_end_with_their_server() {
    let Some(world) = World::serving(0) else {
        return;
    };
    let life = || tokio::runtime::Runtime::new().unwrap();
    let first = life();
    first.block_on(async {
        let server = world.server(2).await;
        world.fill(&server, 2).await;
    });
    first.shutdown_timeout(Duration::from_secs(10));

    life().block_on(async {
        let server = world.server(2).await;
        let left = fs::read_dir(world.path().join("sandboxes")).unwrap();
        assert_eq!(left.count(), 0);
        world.fill(&server, 2).await;
        let (spec, took, waited) = world.create(&server).await;
        println!("warm, alone {took:?}");
        assert!(waited);
        assert!(server.get(&spec.id, PORT, "/").await.contains("200 OK"));
        server.close(vec![spec.id]).await;
    });
}
