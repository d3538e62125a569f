//! A machine with a jail, and ways to ask its sandboxes.

use std::{
    fs,
    ops::Deref,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use soulbox_cgroup::Manager;
use soulbox_jail::Jail;
use soulbox_machine::{Instance, Machine, MachineConfig, Trial, trial};
use soulbox_runtime::{Disk, Error, NewSandbox, Origin, Running, Runtime};
use soulbox_template::Template;
use soulbox_types::{ENVD_PORT, Limits, SandboxSpec, TemplateId, UnixMillis, guest::OverlaySpec};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub(crate) struct Fixture {
    folder: tempfile::TempDir,
    pub(crate) template: Template,
}

/// The tier of one server.
pub(crate) struct Opened {
    pub(crate) machine: Arc<Machine>,
    pub(crate) jail: Arc<Jail>,
    pub(crate) template: Template,
}

impl Deref for Opened {
    type Target = Jail;

    fn deref(&self) -> &Jail {
        &self.jail
    }
}

impl Opened {
    pub(crate) async fn create_from(
        &self,
        spec: &SandboxSpec,
        origin: Origin,
    ) -> Result<(), Error> {
        self.create(self.described(spec, origin), &|_: &Running| Ok(()))
            .await
    }

    pub(crate) fn described<'a>(&'a self, spec: &'a SandboxSpec, origin: Origin) -> NewSandbox<'a> {
        NewSandbox {
            spec,
            template: &self.template,
            origin,
        }
    }

    pub(crate) async fn trial(&self, template: &Template) -> Result<Trial, Error> {
        trial(&self.machine, &*self.jail, template).await
    }

    pub(crate) async fn close(&self) {
        self.machine.close().await;
    }

    pub(crate) fn cgroups(&self) -> &Manager {
        self.machine.cgroups()
    }
}

impl Drop for Fixture {
    /// A test that failed half-way must not leave the machine changed.
    fn drop(&mut self) {
        let Ok(text) = fs::read(self.path().join("instance.json")) else {
            return;
        };
        let instance: Instance = serde_json::from_slice(&text).unwrap();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(Machine::remove_traces(&instance));
        })
        .join()
        .unwrap();
    }
}

impl Fixture {
    /// `None`, with the reason printed, where the machine cannot run it.
    pub(crate) fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: a jail needs root");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let template = template(&folder.path().join("layer"));
        Some(Self { folder, template })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) async fn jail(&self) -> Opened {
        self.jail_for(16).await
    }

    pub(crate) async fn jail_for(&self, max_sandboxes: u32) -> Opened {
        let data_dir = self.path().to_owned();
        let programs = soulbox_guest_programs::install(&data_dir.join("bin")).unwrap();
        let machine = Machine::open(MachineConfig {
            sandboxes_dir: data_dir.join("sandboxes"),
            volumes_dir: data_dir.join("volumes"),
            data_dir,
            programs,
            network_range: None,
            open_ranges: Vec::new(),
            pool: 1,
            max_sandboxes,
            disk_sizes: vec![self.template.limits.disk_mib],
        })
        .await
        .unwrap();
        Opened {
            jail: Jail::open(Arc::clone(&machine)).unwrap(),
            machine,
            template: self.template.clone(),
        }
    }

    /// All tasks and listeners of the first server are gone when this returns; the sandbox is not.
    pub(crate) fn create_in_a_server_that_dies(&self, spec: &SandboxSpec) -> Running {
        std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                let runtime = tokio::runtime::Runtime::new().unwrap();
                runtime.block_on(async { create(&self.jail().await, spec).await })
            });
            server.join().unwrap()
        })
    }

    pub(crate) fn spec(&self) -> SandboxSpec {
        let spec = SandboxSpec {
            template: self.template.id.clone(),
            limits: self.template.limits,
            ..soulbox_testkit::spec()
        };
        fs::create_dir_all(self.path().join("sandboxes").join(spec.id.as_str())).unwrap();
        spec
    }
}

/// The smallest root that envd is happy with, over the host's own `/usr`.
pub(crate) fn template(layer: &Path) -> Template {
    for name in [
        "proc",
        "sys",
        "dev",
        "run",
        "tmp",
        "usr",
        "etc",
        "root",
        "home/user",
    ] {
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
        default_user: "root".to_owned(),
        default_workdir: String::new(),
        limits: Limits {
            cpu_millis: 1000,
            memory_mib: 128,
            disk_mib: 64,
            pids: 64,
        },
        start: None,
        created_at: UnixMillis::now(),
    }
}

pub(crate) fn origin(disk: Disk) -> Origin {
    Origin {
        disk,
        snapshots: Vec::new(),
    }
}

pub(crate) async fn create(jail: &Opened, spec: &SandboxSpec) -> Running {
    let running = Mutex::new(None);
    let new = jail.described(spec, origin(Disk::Fresh));
    jail.create(new, &|started: &Running| {
        *running.lock() = Some(started.clone());
        Ok(())
    })
    .await
    .unwrap();
    running.into_inner().unwrap()
}

/// One request to envd over a connection into the sandbox; the whole answer as it came.
pub(crate) async fn ask(jail: &Opened, spec: &SandboxSpec, head: &str, body: &str) -> String {
    ask_as(jail, spec, head, "application/octet-stream", body).await
}

pub(crate) async fn ask_json(jail: &Opened, spec: &SandboxSpec, head: &str, body: &str) -> String {
    ask_as(jail, spec, head, "application/json", body).await
}

pub(crate) async fn ask_as(
    jail: &Opened,
    spec: &SandboxSpec,
    head: &str,
    kind: &str,
    body: &str,
) -> String {
    let mut stream = jail.dial(&spec.id, ENVD_PORT).await.unwrap();
    let request = format!(
        "{head} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
         content-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

pub(crate) async fn health(jail: &Opened, spec: &SandboxSpec) -> String {
    let answer = ask(jail, spec, "GET /health", "").await;
    answer.lines().next().unwrap_or_default().to_owned()
}

pub(crate) async fn boot_id(jail: &Opened, spec: &SandboxSpec) -> String {
    let path = "GET /files?path=/proc/sys/kernel/random/boot_id";
    let answer = ask(jail, spec, path, "").await;
    answer
        .lines()
        .map(str::trim)
        .find(|line| line.len() == 36)
        .unwrap()
        .to_owned()
}

pub(crate) fn pid_of(running: &Running) -> u64 {
    let record: serde_json::Value = serde_json::from_str(&running.record).unwrap();
    record["pid"].as_u64().unwrap()
}

/// A zombie is dead: it waits for the server of this test to be gone as well.
pub(crate) fn alive(pid: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// One that was killed: the kernel takes a moment.
pub(crate) async fn dead(pid: u64) {
    const LIMIT: Duration = Duration::from_secs(30);
    let gone = tokio::time::timeout(LIMIT, async {
        while alive(pid) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let in_time = gone.await.is_ok();
    assert!(
        in_time,
        "process {pid} was killed and lives after {LIMIT:?}"
    );
}

/// Runs a script as root inside; what it printed on standard output.
pub(crate) async fn run(jail: &Opened, spec: &SandboxSpec, script: &str) -> String {
    ask(jail, spec, "POST /files?path=/root/script", script).await;
    let body =
        r#"{"process":{"cmd":"/bin/sh","args":["-c","exec sh -e /root/script > /root/out"]}}"#;
    let mut frame = vec![0];
    frame.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
    let frame = String::from_utf8(frame).unwrap() + body;
    let kind = "application/connect+json";
    let head = "POST /process.Process/Start";
    let answer = ask_as(jail, spec, head, kind, &frame).await;
    assert!(answer.contains("exit status 0"), "{answer}");
    let answer = ask(jail, spec, "GET /files?path=/root/out", "").await;
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// The id of a prepared slot, as soon as there is one.
pub(crate) async fn reserve(jail: &Opened) -> soulbox_types::SandboxId {
    let found = tokio::time::timeout(Duration::from_secs(30), async {
        loop {
            if let Some(id) = jail.reserve() {
                return id;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    found.await.unwrap()
}

pub(crate) fn spec_with(fixture: &Fixture, id: soulbox_types::SandboxId) -> SandboxSpec {
    let spec = SandboxSpec {
        id,
        ..fixture.spec()
    };
    fs::create_dir_all(fixture.path().join("sandboxes").join(spec.id.as_str())).unwrap();
    spec
}
