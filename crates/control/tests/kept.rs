//! What is kept although something could not be read, written or used: broken sandboxes, and what was
//! committed and not put on the disk.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use soulbox_control::{
    Control, ControlConfig, CreateRequest, Error, EventFilter, LifecycleRequest, MountRequest,
    Resources, TemplateInfo, Tenant, Wait, volume::Volumes,
};
use soulbox_runtime::{Node, Remedy};
use soulbox_store::{Error as StoreError, Store};
use soulbox_testkit::MemoryNode;
use soulbox_types::{Limits, NetworkPolicy, SandboxId, Secret, UnixMillis};
use tempfile::TempDir;

struct World {
    folder: TempDir,
    node: Arc<MemoryNode>,
    control: Arc<Control>,
    tenant: Tenant,
}

fn config(volumes: Option<Arc<Volumes>>) -> ControlConfig {
    ControlConfig {
        seed: Secret::new("00ff"),
        max_timeout: Duration::from_hours(24),
        default_tier: soulbox_types::Tier::default(),
        default_limits: Limits::default(),
        max_sandboxes_per_tenant: 30,
        templates: vec![TemplateInfo {
            id: "basebasebasebasebase".parse().unwrap(),
            build_id: "01890a5d-ac96-774b-bcce-b302099a8057".into(),
            aliases: vec!["base".into()],
            limits: Limits::default(),
            created_at: UnixMillis(1),
            public: true,
        }],
        volumes,
        volume_limit_mib: 64,
        webhooks: soulbox_control::WebhookConfig::default(),
        builds: None,
    }
}

async fn store(folder: &Path) -> Store {
    Store::open(&folder.join("soulbox.db")).await.unwrap()
}

async fn world() -> World {
    world_with(None).await
}

async fn world_with(volumes: Option<Arc<Volumes>>) -> World {
    let folder = tempfile::tempdir().unwrap();
    let node = Arc::new(MemoryNode::default());
    let store = store(folder.path()).await;
    let control = Control::open(config(volumes), store, node.clone()).await;
    let control = control.unwrap();
    control.ensure_default_tenant().await.unwrap();
    let tenant = control.tenant("default").unwrap();
    World {
        folder,
        node,
        control,
        tenant,
    }
}

fn request() -> CreateRequest {
    CreateRequest {
        template: "base".into(),
        tier: None,
        timeout: 300,
        metadata: BTreeMap::new(),
        env: BTreeMap::new(),
        secure: true,
        network: NetworkPolicy::default(),
        lifecycle: LifecycleRequest::default(),
        resources: Resources::default(),
        volume_mounts: Vec::new(),
        idempotency: None,
        wait: Wait::Usual(Duration::from_secs(10)),
    }
}

impl World {
    async fn make(&self) -> SandboxId {
        let made = self.control.create_sandbox(&self.tenant, request()).await;
        made.unwrap().id
    }

    async fn heard(&self, id: &SandboxId, kind: &str) -> usize {
        let filter = EventFilter {
            sandbox: Some(id.clone()),
            limit: 100,
            ..EventFilter::default()
        };
        let events = self.control.events(&self.tenant, &filter).await.unwrap();
        events.iter().filter(|event| event.kind == kind).count()
    }

    fn snapshot_names(&self) -> Vec<String> {
        let mut names: Vec<_> = self
            .control
            .snapshots(&self.tenant)
            .iter()
            .map(soulbox_control::SnapshotInfo::id)
            .collect();
        names.sort();
        names
    }

    /// Connections that are opened later would need the log, too.
    async fn open_connections(&self) {
        let filter = EventFilter::default();
        let looks = (0..16).map(|_| self.control.events(&self.tenant, &filter));
        for looked in futures_util::future::join_all(looks).await {
            looked.unwrap();
        }
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("soulbox.db-wal")
    }

    /// The same data folder and node, another server.
    async fn restarted(self) -> Self {
        let Self {
            folder,
            node,
            control,
            tenant,
        } = self;
        let killed = Arc::downgrade(&control);
        drop(control);
        eventually(async || killed.strong_count() == 0).await;
        let store = store(folder.path()).await;
        let control = Control::open(config(None), store, node.clone()).await;
        Self {
            folder,
            node,
            control: control.unwrap(),
            tenant,
        }
    }
}

async fn eventually(mut check: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !check().await {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), waiting).await;
    waited.expect("it never came");
}

/// A name that leads nowhere stands for a disk that does not take the log. SQLite has it open.
fn break_log(log: &Path) {
    std::fs::rename(log, log.with_extension("aside")).unwrap();
    std::os::unix::fs::symlink(log, log).unwrap();
}

fn mend_log(log: &Path) {
    std::fs::remove_file(log).unwrap();
    std::fs::rename(log.with_extension("aside"), log).unwrap();
}

fn is_unsynced<T: std::fmt::Debug>(answered: &Result<T, Error>) -> bool {
    matches!(answered, Err(Error::Store(StoreError::Unsynced(_))))
}

#[tokio::test]
async fn a_snapshot_whose_name_is_committed_and_not_on_the_disk_is_there_and_its_name_goes_on() {
    let world = world().await;
    let id = world.make().await;
    world.open_connections().await;
    let log = world.log();
    world.node.after_snapshot(move || break_log(&log));
    let name = Some("kept");
    let answered = world
        .control
        .create_snapshot(&world.tenant, &id, name)
        .await;
    mend_log(&world.log());
    assert!(is_unsynced(&answered), "{answered:?}");
    assert_eq!(world.snapshot_names(), ["default/kept:default"]);
    assert_eq!(world.node.snapshots().len(), 1, "its files are kept");

    let again = world
        .control
        .create_snapshot(&world.tenant, &id, name)
        .await;
    assert_eq!(again.unwrap().id(), "default/kept:default");
    let before = world.snapshot_names();
    let world = world.restarted().await;
    assert_eq!(world.snapshot_names(), before);
}

#[tokio::test]
async fn what_is_committed_and_not_on_the_disk_is_what_memory_says() {
    let world = world().await;
    let id = world.make().await;
    let (control, tenant) = (&world.control, &world.tenant);
    control
        .create_snapshot(tenant, &id, Some("one"))
        .await
        .unwrap();
    let key = control.create_key(tenant, "other").await.unwrap();
    world.open_connections().await;
    break_log(&world.log());
    let tagged = control.assign_tags(tenant, "one", vec!["v1".into()]).await;
    let revoked = control.delete_key(tenant, &key.info.id).await;
    mend_log(&world.log());
    assert!(is_unsynced(&tagged) && is_unsynced(&revoked));
    assert_eq!(
        world.snapshot_names(),
        ["default/one:default", "default/one:v1"]
    );
    assert!(control.authenticate(key.key.expose()).is_err(), "revoked");
    let world = world.restarted().await;
    assert_eq!(
        world.snapshot_names(),
        ["default/one:default", "default/one:v1"]
    );
}

/// One tick of the server's own clock after the other.
async fn a_while_later() {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(2)).await;
    tokio::time::resume();
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test]
async fn what_was_left_alone_comes_back_by_itself_and_is_told() {
    let world = world().await;
    let (id, over) = (world.make().await, world.make().await);
    for each in [&id, &over] {
        world.node.break_it(each, Remedy::Retry);
    }
    // Ended elsewhere, as far as the store knows.
    let end = soulbox_store::EndRow::now(soulbox_types::EndReason::Killed, "asked for");
    let beside = store(world.folder.path()).await;
    beside.end_sandbox(&over, &end).await.unwrap();
    let world = world.restarted().await;
    for _ in 0..70 {
        a_while_later().await;
    }
    assert_eq!(world.node.broken().len(), 2, "not whole yet");
    world.node.healed.store(true, Ordering::Relaxed);
    for _ in 0..200 {
        a_while_later().await;
        if world.node.broken().is_empty() && world.heard(&id, "recovered").await == 1 {
            break;
        }
    }
    assert!(world.node.broken().is_empty());
    assert_eq!(world.heard(&id, "recovered").await, 1);
    assert!(world.control.get(&world.tenant, &id).await.is_ok());
    eventually(async || world.node.get(&over).is_none()).await;
    assert!(world.control.get(&world.tenant, &over).await.is_err());
}

#[tokio::test]
async fn one_that_is_recovered_while_it_is_given_up_is_not_told_as_lost() {
    let world = world().await;
    let id = world.make().await;
    world.node.break_it(&id, Remedy::Repair);
    world.node.recovered_before.store(true, Ordering::Relaxed);
    let discarded = world.control.discard(&world.tenant, &id).await;
    assert!(
        matches!(discarded, Err(Error::NotBroken(_))),
        "{discarded:?}"
    );
    assert!(world.node.get(&id).is_some());
    let row = store(world.folder.path()).await.sandbox(&id).await;
    assert!(row.unwrap().unwrap().end.is_none(), "it is there");
}

/// Ours, below a folder that is gone afterwards.
struct Mounted(Arc<Volumes>);

impl Drop for Mounted {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[tokio::test]
async fn the_volumes_of_a_recovered_sandbox_are_there_before_it_can_be_woken() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: mounting needs root");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let volumes = Mounted(Volumes::open(folder.path().to_owned()).unwrap());
    let world = world_with(Some(Arc::clone(&volumes.0))).await;
    let made = world.control.create_volume(&world.tenant, "data").await;
    let volume = made.unwrap();
    let mounts = vec![MountRequest {
        name: "data".into(),
        path: "/data".into(),
    }];
    let request = CreateRequest {
        volume_mounts: mounts,
        ..request()
    };
    let made = world.control.create_sandbox(&world.tenant, request).await;
    let id = made.unwrap().id;
    world.node.break_it(&id, Remedy::Repair);
    // As after a restart of the machine.
    volumes.0.close();
    let place = folder.path().join(&volume.id).join("mnt");
    assert!(!is_mounted(&place));
    world.control.recover(&world.tenant, &id).await.unwrap();
    assert!(is_mounted(&place));
}

fn is_mounted(place: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let place = place.to_str().unwrap();
    mounts
        .lines()
        .any(|line| line.split(' ').nth(4) == Some(place))
}
