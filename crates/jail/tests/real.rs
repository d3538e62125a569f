//! The jail for real: kernel, cgroups, network and the guest programs. Needs root.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

#[path = "real/shared_kernel.rs"]
mod shared_kernel;

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
use soulbox_runtime::{Adopted, Disk, Error, NewSandbox, Origin, Running, Runtime};
use soulbox_template::Template;
use soulbox_types::{
    ENVD_PORT, Limits, NetworkPolicy, SandboxSpec, Secret, TemplateId, UnixMillis,
    guest::OverlaySpec,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

struct Fixture {
    folder: tempfile::TempDir,
    template: Template,
}

/// The tier of one server.
struct Opened {
    machine: Arc<Machine>,
    jail: Arc<Jail>,
    template: Template,
}

impl Deref for Opened {
    type Target = Jail;

    fn deref(&self) -> &Jail {
        &self.jail
    }
}

impl Opened {
    async fn create_from(&self, spec: &SandboxSpec, origin: Origin) -> Result<(), Error> {
        self.create(self.described(spec, origin), &|_: &Running| Ok(()))
            .await
    }

    fn described<'a>(&'a self, spec: &'a SandboxSpec, origin: Origin) -> NewSandbox<'a> {
        NewSandbox {
            spec,
            template: &self.template,
            origin,
        }
    }

    async fn trial(&self, template: &Template) -> Result<Trial, Error> {
        trial(&self.machine, &*self.jail, template).await
    }

    async fn close(&self) {
        self.machine.close().await;
    }

    fn cgroups(&self) -> &Manager {
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
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: a jail needs root");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let template = template(&folder.path().join("layer"));
        Some(Self { folder, template })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    async fn jail(&self) -> Opened {
        self.jail_for(16).await
    }

    async fn jail_for(&self, max_sandboxes: u32) -> Opened {
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
    fn create_in_a_server_that_dies(&self, spec: &SandboxSpec) -> Running {
        std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                let runtime = tokio::runtime::Runtime::new().unwrap();
                runtime.block_on(async { create(&self.jail().await, spec).await })
            });
            server.join().unwrap()
        })
    }

    fn spec(&self) -> SandboxSpec {
        let now = UnixMillis::now();
        let spec = SandboxSpec {
            id: soulbox_types::SandboxId::random(),
            tenant: "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap(),
            tier: soulbox_types::Tier::default(),
            template: self.template.id.clone(),
            build: None,
            purpose: soulbox_types::Purpose::User,
            alias: None,
            limits: self.template.limits,
            env: [].into(),
            metadata: [].into(),
            network: NetworkPolicy::default(),
            lifecycle: soulbox_types::Lifecycle::default(),
            snapshot: None,
            volumes: Vec::new(),
            access_token: None,
            traffic_token: None,
            node_token: Secret::random(),
            created_at: now,
            deadline: now.plus(Duration::from_mins(5)),
        };
        fs::create_dir_all(self.path().join("sandboxes").join(spec.id.as_str())).unwrap();
        spec
    }
}

/// The smallest root that envd is happy with, over the host's own `/usr`.
fn template(layer: &Path) -> Template {
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

fn origin(disk: Disk) -> Origin {
    Origin {
        disk,
        snapshots: Vec::new(),
    }
}

async fn create(jail: &Opened, spec: &SandboxSpec) -> Running {
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
async fn ask(jail: &Opened, spec: &SandboxSpec, head: &str, body: &str) -> String {
    ask_as(jail, spec, head, "application/octet-stream", body).await
}

async fn ask_json(jail: &Opened, spec: &SandboxSpec, head: &str, body: &str) -> String {
    ask_as(jail, spec, head, "application/json", body).await
}

async fn ask_as(jail: &Opened, spec: &SandboxSpec, head: &str, kind: &str, body: &str) -> String {
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

async fn health(jail: &Opened, spec: &SandboxSpec) -> String {
    let answer = ask(jail, spec, "GET /health", "").await;
    answer.lines().next().unwrap_or_default().to_owned()
}

async fn boot_id(jail: &Opened, spec: &SandboxSpec) -> String {
    let path = "GET /files?path=/proc/sys/kernel/random/boot_id";
    let answer = ask(jail, spec, path, "").await;
    answer
        .lines()
        .map(str::trim)
        .find(|line| line.len() == 36)
        .unwrap()
        .to_owned()
}

fn pid_of(running: &Running) -> u64 {
    let record: serde_json::Value = serde_json::from_str(&running.record).unwrap();
    record["pid"].as_u64().unwrap()
}

/// A zombie is dead: it waits for the server of this test to be gone as well.
fn alive(pid: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// One that was killed: the kernel takes a moment.
async fn dead(pid: u64) {
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

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_lives_answers_and_leaves_nothing() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let spec = fixture.spec();
    let running = create(&jail, &spec).await;
    assert!(health(&jail, &spec).await.contains("204"));
    assert!(matches!(
        jail.dial(&spec.id, 1).await,
        Err(Error::PortClosed { port: 1, .. })
    ));

    let stats = jail.stats(&spec.id).await.unwrap();
    assert!(stats.memory_bytes > 0 && stats.pids >= 1);
    assert!(stats.disk_total_bytes > 32 << 20 && stats.disk_total_bytes < 64 << 20);

    jail.pause(&spec.id).await.unwrap();
    jail.resume(&spec.id).await.unwrap();
    assert!(health(&jail, &spec).await.contains("204"));

    jail.destroy(&spec.id, None).await.unwrap();
    jail.destroy(&spec.id, Some(&running)).await.unwrap();
    assert!(matches!(
        jail.dial(&spec.id, ENVD_PORT).await,
        Err(Error::SandboxNotFound(_))
    ));
    assert!(!alive(pid_of(&running)));
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_sandbox_can_be_destroyed() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let spec = fixture.spec();
    create(&jail, &spec).await;
    jail.pause(&spec.id).await.unwrap();
    jail.destroy(&spec.id, None).await.unwrap();
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trial_does_all_that_a_sandbox_does_and_leaves_nothing() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let trial = jail.trial(&fixture.template).await.unwrap();
    let did: Vec<_> = trial.steps.iter().map(|(what, _)| *what).collect();
    assert_eq!(did, ["started", "answered", "paused", "resumed", "ended"]);
    assert!(
        fs::read_dir(fixture.path().join("sandboxes")).map_or(true, |mut all| all.next().is_none())
    );
    assert_eq!(jail.cgroups().names().unwrap(), Vec::<String>::new());
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trial_that_fails_names_the_step_and_leaves_nothing() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let mut broken = fixture.template.clone();
    broken.overlays[0]
        .lower
        .push(fixture.path().join("missing"));
    let error = jail.trial(&broken).await.unwrap_err();
    let Error::Start { step, message } = &error else {
        panic!("{error}");
    };
    assert_eq!(step, "shift ids of layer");
    assert!(message.contains("missing"), "{message}");
    assert!(
        fs::read_dir(fixture.path().join("sandboxes")).map_or(true, |mut all| all.next().is_none())
    );
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn root_inside_is_a_stranger_outside() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let spec = fixture.spec();
    let pid = pid_of(&create(&jail, &spec).await);
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|l| l.starts_with(name)).unwrap();
        line.split_once(':').unwrap().1.trim().to_owned()
    };
    let uid: u32 = field("Uid")
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!((0x7000_0000..0x7ffe_0000).contains(&uid), "{uid:#x}");
    assert_eq!(field("Seccomp"), "2");
    let bounding = u64::from_str_radix(&field("CapBnd"), 16).unwrap();
    assert_eq!(bounding & (1 << 21), 0, "CAP_SYS_ADMIN");
    for namespace in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"] {
        let of = |who: &str| fs::read_link(format!("/proc/{who}/ns/{namespace}")).unwrap();
        assert_ne!(of(&pid.to_string()), of("self"), "{namespace}");
    }
    jail.destroy(&spec.id, None).await.unwrap();
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_server_on_the_same_folder_adopts_the_sandbox() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let spec = fixture.spec();
    let running = fixture.create_in_a_server_that_dies(&spec);

    let second = fixture.jail().await;
    assert_eq!(second.adopt(&spec, &running).await.unwrap(), Adopted::Alive);
    // As when what came after it failed, and everything is tried again.
    assert_eq!(second.adopt(&spec, &running).await.unwrap(), Adopted::Alive);
    assert!(health(&second, &spec).await.contains("204"));
    second.destroy(&spec.id, Some(&running)).await.unwrap();
    assert_eq!(second.adopt(&spec, &running).await.unwrap(), Adopted::Gone);
    second.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_keeps_is_reclaimed() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let pid = pid_of(&fixture.create_in_a_server_that_dies(&fixture.spec()));
    let second = fixture.jail().await;
    second.reclaim(&[]).await.unwrap();
    assert!(!alive(pid));
    second.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_start_names_the_step() {
    let Some(mut fixture) = Fixture::new() else {
        return;
    };
    fixture.template.overlays[0].lower = vec!["/nonexistent".into()];
    let jail = fixture.jail().await;
    let error = jail
        .create_from(&fixture.spec(), origin(Disk::Fresh))
        .await
        .unwrap_err();
    match error {
        Error::Start { step, message } => {
            assert_eq!(step, "shift ids of layer");
            assert!(message.contains("/nonexistent"), "{message}");
        }
        other => panic!("{other}"),
    }
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_sandbox_starts_again_from_its_disk() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let spec = fixture.spec();
    let pid = pid_of(&create(&jail, &spec).await);
    let answer = ask(&jail, &spec, "POST /files?path=/root/kept", "still here").await;
    assert!(answer.contains("200 OK"), "{answer}");
    let first_boot = boot_id(&jail, &spec).await;
    let host = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert_ne!(first_boot, host.trim());
    assert_eq!(boot_id(&jail, &spec).await, first_boot);
    jail.stop(&spec.id).await.unwrap();
    assert!(!alive(pid));

    jail.create_from(&spec, origin(Disk::Kept)).await.unwrap();
    let answer = ask(&jail, &spec, "GET /files?path=/root/kept", "").await;
    assert!(answer.ends_with("still here"), "{answer}");
    assert_ne!(boot_id(&jail, &spec).await, first_boot);
    jail.destroy(&spec.id, None).await.unwrap();
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_is_not_started_twice_on_one_disk() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let spec = fixture.spec();
    let pid = pid_of(&create(&jail, &spec).await);
    for disk in [Disk::Kept, Disk::Fresh] {
        let again = jail.create_from(&spec, origin(disk));
        assert!(matches!(again.await, Err(Error::InUse { .. })), "{disk:?}");
    }
    assert!(alive(pid), "the refusal ends nothing");
    drop(jail);

    // A server that does not know of it, as after a clean-up that failed.
    let jail = fixture.jail().await;
    let again = jail.create_from(&spec, origin(Disk::Kept));
    assert!(matches!(again.await, Err(Error::InUse { .. })));
    assert!(alive(pid));
    jail.stop(&spec.id).await.unwrap();
    assert!(!alive(pid));
    create_kept(&jail, &spec).await;
    jail.destroy(&spec.id, None).await.unwrap();
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_died_while_it_was_frozen_can_be_stopped_and_started_from_its_disk() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let spec = fixture.spec();
    let pid = pid_of(&create(&jail, &spec).await);
    ask(&jail, &spec, "POST /files?path=/root/kept", "still here").await;
    jail.pause(&spec.id).await.unwrap();
    let number = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(number, rustix::process::Signal::KILL).unwrap();
    // On cgroup v1 it dies when it is thawed.
    jail.resume(&spec.id).await.unwrap();
    jail.wait(&spec.id).await.unwrap();
    jail.stop(&spec.id).await.unwrap();
    jail.stop(&spec.id).await.unwrap();
    create_kept(&jail, &spec).await;
    let answer = ask(&jail, &spec, "GET /files?path=/root/kept", "").await;
    assert!(answer.ends_with("still here"), "{answer}");
    jail.destroy(&spec.id, None).await.unwrap();
    jail.close().await;
}

async fn create_kept(jail: &Opened, spec: &SandboxSpec) {
    jail.create_from(spec, origin(Disk::Kept)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_captured_disk_carries_files_deletions_and_owners_into_another_sandbox() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let (first, second, third) = (fixture.spec(), fixture.spec(), fixture.spec());
    create(&jail, &first).await;
    ask(&jail, &first, "POST /files?path=/root/made", "one").await;
    ask(
        &jail,
        &first,
        "POST /files?path=/home/user/mine&username=user",
        "two",
    )
    .await;

    let image = fixture.path().join("snapshot.img");
    jail.capture(&first.id, &image).await.unwrap();
    ask(
        &jail,
        &first,
        "POST /files?path=/root/made",
        "changed later",
    )
    .await;
    let origin = |images: &[&PathBuf]| Origin {
        disk: Disk::Fresh,
        snapshots: images.iter().map(|i| (*i).clone()).collect(),
    };
    jail.create_from(&second, origin(&[&image])).await.unwrap();
    let answer = ask(&jail, &second, "GET /files?path=/root/made", "").await;
    assert!(answer.ends_with("one"), "{answer}");

    // A snapshot of what stands on a snapshot: both layers count, and neither source matters.
    ask(&jail, &second, "POST /files?path=/root/made", "three").await;
    let upper = fixture.path().join("second.img");
    jail.pause(&second.id).await.unwrap();
    jail.capture(&second.id, &upper).await.unwrap();
    jail.destroy(&second.id, None).await.unwrap();
    jail.destroy(&first.id, None).await.unwrap();
    jail.create_from(&third, origin(&[&upper, &image]))
        .await
        .unwrap();
    let answer = ask(&jail, &third, "GET /files?path=/root/made", "").await;
    assert!(answer.ends_with("three"), "{answer}");
    let answer = ask(&jail, &third, "GET /files?path=/home/user/mine", "").await;
    assert!(answer.ends_with("two"), "{answer}");
    let body = r#"{"path":"/home/user/mine"}"#;
    let stat = ask_json(&jail, &third, "POST /filesystem.Filesystem/Stat", body).await;
    assert!(stat.contains(r#""owner":"user""#), "{stat}");
    jail.destroy(&third.id, None).await.unwrap();
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_counted_per_user_is_counted_per_sandbox() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let spec = fixture.spec();
    let pid = pid_of(&create(&jail, &spec).await);
    let namespace = fs::File::open(format!("/proc/{pid}/ns/user")).unwrap();
    let owner = soulbox_sys::namespace_owner(&namespace).unwrap();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let uid = status.lines().find_map(|l| l.strip_prefix("Uid:")).unwrap();
    assert_eq!(uid.split_whitespace().next().unwrap(), owner.to_string());

    // And nothing of the host is open in envd: only pipes, sockets and its own root's files.
    for descriptor in fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
        // One that was closed meanwhile is no file of the host's.
        let Ok(target) = fs::read_link(descriptor.unwrap().path()) else {
            continue;
        };
        assert!(!target.starts_with(fixture.path()), "{}", target.display());
    }
    jail.destroy(&spec.id, None).await.unwrap();
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_is_shared_by_its_place_and_never_by_a_link() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let folder = fixture.path().join("volumes/v/mnt");
    fs::create_dir_all(&folder).unwrap();
    let volume = |path: &str| soulbox_types::VolumeMount {
        volume: "v".to_owned(),
        name: "v".to_owned(),
        path: path.to_owned(),
    };
    let mut spec = fixture.spec();
    spec.volumes = vec![volume("/mnt/deep/data")];
    create(&jail, &spec).await;
    let answer = ask(&jail, &spec, "POST /files?path=/mnt/deep/data/f", "shared").await;
    assert!(answer.contains("200 OK"), "{answer}");
    assert_eq!(fs::read_to_string(folder.join("f")).unwrap(), "shared");

    // What a sandbox left behind must not lead the next start over its own /proc.
    let body = r#"{"process":{"cmd":"/bin/ln","args":["-s","/proc","/mnt/p"]}}"#;
    let mut frame = vec![0];
    frame.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
    let frame = String::from_utf8(frame).unwrap() + body;
    let answer = ask_as(
        &jail,
        &spec,
        "POST /process.Process/Start",
        "application/connect+json",
        &frame,
    )
    .await;
    assert!(answer.contains("exit status 0"), "{answer}");
    jail.stop(&spec.id).await.unwrap();
    spec.volumes = vec![volume("/mnt/p/sys")];
    let refused = jail.create_from(&spec, origin(Disk::Kept));
    match refused.await {
        Err(Error::Start { step, .. }) => assert_eq!(step, "place of volume"),
        other => panic!("{other:?}"),
    }
    jail.close().await;
}

/// Runs a script as root inside; what it printed on standard output.
async fn run(jail: &Opened, spec: &SandboxSpec, script: &str) -> String {
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

/// Every fact about a tree that a layer has to carry.
const DESCRIBE: &str = r#"
    cd /data
    find . ! -type d -printf '%P %y %m %U:%G %s %T@ %n %l\0' | sort -z | tr '\0\n' '\n?'
    find . -type d -printf '%P %y %m %U:%G %T@\0' | sort -z | tr '\0\n' '\n?'
    find . -type f -size -1000k -print0 | sort -z | xargs -0 md5sum | tr -d '\\\\'
    find /usr/share/moved /usr/made | sort
    /usr/sbin/getcap caps 2>/dev/null || true
    python3 -c 'import os; print(os.getxattr("noted", "user.note"))' || true
"#;

#[tokio::test(flavor = "multi_thread")]
async fn what_a_sandbox_changed_becomes_a_layer_that_shows_the_same() {
    let Some(mut fixture) = Fixture::new() else {
        return;
    };
    let below = fixture.path().join("layer/data");
    for folder in ["emptied/deep", "moved/in", "renamed"] {
        fs::create_dir_all(below.join(folder)).unwrap();
    }
    for file in [
        "kept",
        "gone",
        "changed",
        "emptied/a",
        "moved/in/b",
        "renamed/c",
    ] {
        fs::write(below.join(file), "from the template").unwrap();
    }
    let mut jail = fixture.jail().await;
    let first = fixture.spec();
    create(&jail, &first).await;
    let script = r#"
        cd /data
        rm gone; echo more >> changed
        rm -r emptied; mkdir emptied; echo new > emptied/z
        mv moved elsewhere; echo x >> elsewhere/in/b; mkdir moved
        mv renamed renamed2; mv renamed2 renamed3
        mkdir own; echo o > own/file; chown -R 1000:1000 own; chmod 2750 own
        cp /bin/true setuid; chmod 4755 setuid
        echo l > one; ln one two; ln one own/three
        ln -s /nowhere link; chown -h 1000:7 link; mkfifo -m 620 pipe
        truncate -s 1G sparse; echo end >> sparse
        printf n > "$(printf 'new\nline "q" \\ \377')"
        touch -d '2001-02-03 04:05:06.789' kept link
        cp /bin/true caps; /usr/sbin/setcap cap_net_bind_service+ep caps 2>/dev/null || true
        echo n > noted; python3 -c 'import os; os.setxattr("noted", "user.note", b"hello")' || true
        mkdir -p /usr/share/moved_from/a; mv /usr/share/moved_from /usr/share/moved
        echo u > /usr/made; rm -r /usr/share/doc
    "#;
    run(&jail, &first, script).await;
    let seen = run(&jail, &first, DESCRIBE).await;
    let target = fixture.path().join("exported");
    let layers = jail.export(&first.id, &target).await.unwrap();
    assert_eq!(layers.len(), 2);
    jail.destroy(&first.id, None).await.unwrap();
    let upper: Vec<_> = fs::read_dir(&target).unwrap().collect();
    assert_eq!(upper.len(), 2, "{upper:?}");
    let sparse = fs::metadata(layers[0].directory.join("data/sparse")).unwrap();
    assert!(std::os::unix::fs::MetadataExt::blocks(&sparse) < 100);

    for layer in &layers {
        let overlays = &mut fixture.template.overlays;
        let overlay = overlays.iter_mut().find(|o| o.target == layer.target);
        overlay.unwrap().lower.insert(0, layer.directory.clone());
    }
    jail.template = fixture.template.clone();
    let second = fixture.spec();
    create(&jail, &second).await;
    assert_eq!(run(&jail, &second, DESCRIBE).await, seen);
    for fact in [
        "elsewhere/in/b f",
        "renamed3/c f",
        "setuid f 4755 0:0",
        "own/three f",
    ] {
        assert!(seen.contains(fact), "{fact}: {seen}");
    }
    run(
        &jail,
        &second,
        "cd /data; test ! -e gone -a ! -e emptied/a -a ! -e /usr/share/doc",
    )
    .await;
    jail.destroy(&second.id, None).await.unwrap();
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_that_is_no_layer_leaves_nothing_behind() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let spec = fixture.spec();
    create(&jail, &spec).await;
    let script = "cd /root; i=0; while [ $i -lt 400 ]; do mkdir d; cd d; i=$((i+1)); done";
    run(&jail, &spec, script).await;
    let target = fixture.path().join("exported");
    let error = jail.export(&spec.id, &target).await.unwrap_err();
    let said = format!("{error}: {}", std::error::Error::source(&error).unwrap());
    assert!(said.contains("deeper than 256"), "{said}");
    assert!(!target.exists());
    jail.destroy(&spec.id, None).await.unwrap();
    jail.close().await;
}

/// A file system with next to no room, gone when this is.
struct Tiny(PathBuf);

impl Tiny {
    fn mount(path: PathBuf, options: &str) -> Self {
        fs::create_dir_all(&path).unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]);
        assert!(mount.arg(&path).status().unwrap().success());
        Self(path)
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        let unmounted = std::process::Command::new("umount").arg(&self.0).status();
        assert!(unmounted.unwrap().success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_full_disk_has_cost_is_told_by_the_next_pause_and_snapshot() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let host = Tiny::mount(fixture.path().join("sandboxes"), "size=24m");
    let spec = fixture.spec();
    create(&jail, &spec).await;
    jail.pause(&spec.id).await.unwrap();
    jail.resume(&spec.id).await.unwrap();
    let script = "head -c 60000000 /dev/urandom > /root/big; sync /root/big && echo kept || true";
    let said = run(&jail, &spec, script).await;
    assert!(!said.contains("kept"), "{said}");
    for attempt in [
        jail.pause(&spec.id).await,
        jail.stop(&spec.id).await,
        jail.capture(&spec.id, &fixture.path().join("image")).await,
    ] {
        let error = attempt.unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{error:?}");
        assert!(error.to_string().contains("copy out what you need"));
    }
    // It runs on, so that what can be read can be copied.
    assert!(jail.stats(&spec.id).await.unwrap().pids > 0);
    jail.destroy(&spec.id, None).await.unwrap();
    drop(host);
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_or_its_inodes_that_run_out_are_told_as_that_and_leave_nothing_behind() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    for (name, options, script) in [
        (
            "bytes",
            "size=1m",
            "head -c 4000000 /dev/zero | tr '\\0' x > /root/big",
        ),
        ("files", "nr_inodes=20", "cd /root; touch $(seq 100)"),
    ] {
        let tiny = Tiny::mount(fixture.path().join(name), options);
        let spec = fixture.spec();
        create(&jail, &spec).await;
        run(&jail, &spec, script).await;
        let target = tiny.0.join("exported");
        let error = jail.export(&spec.id, &target).await.unwrap_err();
        assert!(matches!(error, Error::NoCapacity { .. }), "{error:?}");
        assert!(error.to_string().contains("is full"), "{error}");
        assert!(!target.exists());
        jail.destroy(&spec.id, None).await.unwrap();
    }
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_layers_are_one_root() {
    let Some(mut fixture) = Fixture::new() else {
        return;
    };
    let bottom = fixture.template.overlays[0].lower.clone();
    for count in [10, 60, 120] {
        let layers = (0..count).map(|number| {
            let layer = fixture.path().join(format!("more/{count}/{number}"));
            fs::create_dir_all(layer.join("root")).unwrap();
            fs::write(layer.join("root/top"), number.to_string()).unwrap();
            fs::write(layer.join(format!("root/of{number}")), "").unwrap();
            layer
        });
        let lower = layers.chain(bottom.clone()).collect();
        fixture.template.overlays[0].lower = lower;
        let jail = fixture.jail().await;
        let spec = fixture.spec();
        let start = std::time::Instant::now();
        create(&jail, &spec).await;
        println!("{count} layers: {:?}", start.elapsed());
        let seen = run(&jail, &spec, "cat /root/top; ls /root/of* | wc -l").await;
        assert_eq!(seen, format!("0{count}\n"));
        jail.destroy(&spec.id, None).await.unwrap();
        // As the node does; while it is there, the next server may not choose another range.
        fs::remove_dir_all(fixture.path().join("sandboxes").join(spec.id.as_str())).unwrap();
        jail.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_change_while_it_runs_and_never_below_what_is_in_use() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let spec = fixture.spec();
    create(&jail, &spec).await;
    let mut limits = Limits {
        cpu_millis: 500,
        memory_mib: 256,
        pids: 100,
        ..spec.limits
    };
    jail.set_limits(&spec.id, &limits).await.unwrap();
    // More than the old limit allowed. In memory that cannot be reclaimed.
    run(&jail, &spec, "head -c 60M /dev/zero > /dev/shm/held").await;
    limits.memory_mib = 32;
    match jail.set_limits(&spec.id, &limits).await {
        Err(Error::InUse { what, .. }) => assert!(what.contains("32 MiB"), "{what}"),
        other => panic!("{other:?}"),
    }
    let stats = jail.stats(&spec.id).await.unwrap();
    assert_eq!(stats.oom_kills, 0);
    assert!(health(&jail, &spec).await.contains("204"));
    run(&jail, &spec, "rm /dev/shm/held").await;
    limits.memory_mib = 64;
    jail.set_limits(&spec.id, &limits).await.unwrap();
    jail.destroy(&spec.id, None).await.unwrap();
    jail.close().await;
}

/// Period and quota in microseconds, and the share that 100 stands for the usual of.
fn cpu_of(jail: &Opened, id: &soulbox_types::SandboxId) -> (u64, u64, u64) {
    let view = jail.cgroups().existing(id.as_str()).view();
    let (dir, _) = view
        .iter()
        .find(|(_, inside)| ["", "cpu"].contains(&inside.to_str().unwrap()))
        .unwrap();
    let read = |file: &str| fs::read_to_string(dir.join(file)).ok();
    let number = |text: &str| text.trim().parse::<u64>().unwrap();
    if let Some(max) = read("cpu.max") {
        let (quota, period) = max.split_once(' ').unwrap();
        let weight = read("cpu.weight").unwrap();
        return (number(period), number(quota), number(&weight));
    }
    let [period, quota, shares] = ["cpu.cfs_period_us", "cpu.cfs_quota_us", "cpu.shares"]
        .map(|file| number(&read(file).unwrap()));
    (period, quota, (shares * 100).div_ceil(1024))
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_nobody_waits_for_yields_until_it_has_an_owner() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    jail.reclaim(&[]).await.unwrap();
    let refill = soulbox_runtime::Refill::of_this_machine();
    // In a slot that was prepared with a user's limits, and in one of its own.
    let ahead = spec_with(&fixture, reserve(&jail).await);
    for spec in [ahead, fixture.spec()] {
        let spec = SandboxSpec {
            purpose: soulbox_types::Purpose::Warm,
            limits: Limits {
                cpu_millis: 4000,
                ..spec.limits
            },
            ..spec
        };
        create(&jail, &spec).await;
        let quota = |millis: u32| u64::from(millis) * 100;
        let capped = quota(refill.cpu_millis.min(spec.limits.cpu_millis));
        let weight = u64::from(soulbox_runtime::Refill::CPU_WEIGHT);
        assert_eq!(cpu_of(&jail, &spec.id), (100_000, capped, weight));
        jail.set_limits(&spec.id, &spec.limits).await.unwrap();
        let full = quota(spec.limits.cpu_millis);
        assert_eq!(cpu_of(&jail, &spec.id), (100_000, full, 100));
        jail.destroy(&spec.id, None).await.unwrap();
        let gone = jail.set_limits(&spec.id, &spec.limits).await;
        assert!(matches!(gone, Err(Error::SandboxNotFound(_))), "{gone:?}");
    }
    // Those that are made ahead are for users.
    let next = reserve(&jail).await;
    assert_eq!(cpu_of(&jail, &next).2, 100);
    jail.close().await;
}

/// The id of a prepared slot, as soon as there is one.
async fn reserve(jail: &Opened) -> soulbox_types::SandboxId {
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

fn spec_with(fixture: &Fixture, id: soulbox_types::SandboxId) -> SandboxSpec {
    let spec = SandboxSpec {
        id,
        ..fixture.spec()
    };
    fs::create_dir_all(fixture.path().join("sandboxes").join(spec.id.as_str())).unwrap();
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_takes_the_prepared_slot_of_its_id() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    assert!(jail.reserve().is_none(), "not before the past is cleared");
    jail.reclaim(&[]).await.unwrap();
    let id = reserve(&jail).await;
    let group = jail.cgroups().existing(id.as_str());
    let waiting = group.pids().unwrap();
    assert_eq!(waiting.len(), 1, "an init waits in its group");
    let spec = spec_with(&fixture, id);
    create(&jail, &spec).await;
    assert!(health(&jail, &spec).await.contains("204"));
    assert!(!alive(u64::from(waiting[0])), "it has done its work");
    let next = reserve(&jail).await;
    assert_ne!(next, spec.id);
    jail.destroy(&spec.id, None).await.unwrap();
    jail.close().await;
    assert!(!group.exists());
    assert!(!jail.cgroups().existing(next.as_str()).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_slot_whose_init_died_is_made_again() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    jail.reclaim(&[]).await.unwrap();
    let id = reserve(&jail).await;
    let group = jail.cgroups().existing(id.as_str());
    let waiting = u64::from(group.pids().unwrap()[0]);
    group.kill_all().unwrap();
    dead(waiting).await;
    let spec = spec_with(&fixture, id);
    create(&jail, &spec).await;
    assert!(health(&jail, &spec).await.contains("204"));
    jail.destroy(&spec.id, None).await.unwrap();
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_slot_whose_init_died_does_not_wait_for_anybody() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    jail.reclaim(&[]).await.unwrap();
    let groups = || {
        let names = jail.cgroups().names().unwrap().into_iter();
        let groups = names.map(|name| jail.cgroups().existing(&name));
        groups
            .filter(|group| group.pids().is_ok_and(|pids| pids.len() == 1))
            .collect::<Vec<_>>()
    };
    let replaced = tokio::time::timeout(Duration::from_mins(1), async {
        while groups().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let first = groups().remove(0);
        first.kill_all().unwrap();
        while first.exists() || groups().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    replaced.await.unwrap();
    jail.close().await;
    assert!(groups().is_empty());
}

/// Killed after it was found alive, before it has read what it is to become.
#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_slot_whose_init_dies_at_the_last_moment_is_made_again() {
    const FREEZING: Duration = Duration::from_secs(10);
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    jail.reclaim(&[]).await.unwrap();
    let id = reserve(&jail).await;
    let group = jail.cgroups().existing(id.as_str());
    let waiting = group.pids().unwrap()[0];
    let specs = fs::File::open(format!("/proc/{waiting}/fd/0")).unwrap();
    group.freeze(FREEZING).unwrap();
    let spec = spec_with(&fixture, id);
    let kill = async {
        while rustix::io::ioctl_fionread(&specs).unwrap() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let pid = rustix::process::Pid::from_raw(waiting.try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        group.thaw(FREEZING).unwrap();
    };
    tokio::time::timeout(Duration::from_secs(30), async {
        tokio::join!(create(&jail, &spec), kill)
    })
    .await
    .unwrap();
    assert!(health(&jail, &spec).await.contains("204"));
    jail.destroy(&spec.id, None).await.unwrap();
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn prepared_slots_take_no_network_slot_from_sandboxes() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail_for(4).await;
    jail.reclaim(&[]).await.unwrap();
    let _reserved = reserve(&jail).await;
    let specs: Vec<_> = (0..4).map(|_| fixture.spec()).collect();
    for spec in &specs {
        create(&jail, spec).await;
    }
    for spec in &specs {
        jail.destroy(&spec.id, None).await.unwrap();
    }
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_is_reserved_once_and_one_that_is_refused_leaves_nothing() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    jail.reclaim(&[]).await.unwrap();
    let mut reserved = Vec::new();
    for _ in 0..4 {
        let id = reserve(&jail).await;
        assert!(!reserved.contains(&id), "{id} was given out before");
        // No more than are wanted, whatever became of those that were reserved.
        assert!(jail.reserve().is_none());
        jail.release(&id);
        let group = jail.cgroups().existing(id.as_str());
        let gone = tokio::time::timeout(Duration::from_secs(30), async {
            while group.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        gone.await.unwrap();
        reserved.push(id);
    }
    // Whoever comes with a released id all the same gets a slot made for them.
    let spec = spec_with(&fixture, reserved.remove(0));
    create(&jail, &spec).await;
    assert!(health(&jail, &spec).await.contains("204"));
    jail.destroy(&spec.id, None).await.unwrap();
    jail.close().await;
}

#[derive(Debug, Clone, Copy)]
enum Released {
    JustNow,
    /// Its init has ended, and its group is about to go.
    WhileItIsRemoved,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_whose_reservation_was_released_meanwhile_is_served_all_the_same() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    jail.reclaim(&[]).await.unwrap();
    for moment in [Released::JustNow, Released::WhileItIsRemoved].repeat(4) {
        let id = reserve(&jail).await;
        let group = jail.cgroups().existing(id.as_str());
        let waiting = u64::from(group.pids().unwrap()[0]);
        jail.release(&id);
        jail.release(&id);
        if let Released::WhileItIsRemoved = moment {
            dead(waiting).await;
        }
        let spec = spec_with(&fixture, id);
        create(&jail, &spec).await;
        // Nothing happens to what a create has used.
        jail.release(&spec.id);
        let next = reserve(&jail).await;
        assert!(health(&jail, &spec).await.contains("204"), "{moment:?}");
        jail.release(&next);
        jail.destroy(&spec.id, None).await.unwrap();
        assert!(!group.exists());
    }
    jail.close().await;
    assert!(jail.cgroups().names().unwrap_or_default().is_empty());
}

#[test]
fn prepared_slots_of_a_server_that_died_are_reclaimed_by_the_next() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let left = runtime.block_on(async {
        let jail = fixture.jail().await;
        jail.reclaim(&[]).await.unwrap();
        reserve(&jail).await
    });
    // All tasks, pipes and handles of the first one are gone.
    drop(runtime);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let jail = fixture.jail().await;
        let group = jail.cgroups().existing(left.as_str());
        assert!(group.exists());
        jail.reclaim(&[]).await.unwrap();
        assert!(!group.exists());
        jail.close().await;
    });
}
