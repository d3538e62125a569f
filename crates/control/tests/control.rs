//! What the control plane promises, over a real store and a node in memory.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

#[path = "support/memory_node.rs"]
mod memory_node;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use memory_node::{MemoryNode, Moment};
use soulbox_control::{
    Access, Control, ControlConfig, CreateRequest, Error, Event, EventFilter, IdempotencyKey,
    LifecycleRequest, Resources, TemplateInfo, Tenant,
};
use soulbox_runtime::{Error as NodeError, Node, NotWoken};
use soulbox_store::{EndRow, KeyRow, SandboxRow, Store};
use soulbox_types::{
    EndReason, Limits, NetworkPolicy, PauseMode, SandboxId, SandboxSpec, Secret, TenantId, Tier,
    UnixMillis,
};
use tempfile::TempDir;

const DAY: Duration = Duration::from_hours(24);

struct World {
    folder: TempDir,
    node: Arc<MemoryNode>,
    control: Arc<Control>,
    tenant: Tenant,
    key: Secret,
}

fn config() -> ControlConfig {
    ControlConfig {
        seed: Secret::new("00ff"),
        max_timeout: DAY,
        default_tier: soulbox_types::Tier::default(),
        default_limits: Limits::default(),
        max_sandboxes_per_tenant: 3,
        templates: vec![TemplateInfo {
            id: "basebasebasebasebase".parse().unwrap(),
            build_id: "01890a5d-ac96-774b-bcce-b302099a8057".into(),
            aliases: vec!["base".into()],
            limits: Limits::default(),
            created_at: UnixMillis(1),
            public: true,
        }],
        volumes: None,
        volume_limit_mib: 64,
        webhooks: soulbox_control::WebhookConfig::default(),
        builds: None,
    }
}

async fn store(folder: &Path) -> Store {
    Store::open(&folder.join("soulbox.db")).await.unwrap()
}

async fn world() -> World {
    let folder = tempfile::tempdir().unwrap();
    let node = Arc::new(MemoryNode::default());
    let control = Control::open(config(), store(folder.path()).await, node.clone())
        .await
        .unwrap();
    let key = control.ensure_default_tenant().await.unwrap().unwrap().key;
    let tenant = control.tenant("default").unwrap();
    World {
        folder,
        node,
        control,
        tenant,
        key,
    }
}

impl World {
    async fn create(&self, request: CreateRequest) -> Result<Access, Error> {
        self.control.create_sandbox(&self.tenant, request).await
    }

    async fn make(&self) -> SandboxId {
        self.create(request()).await.unwrap().id
    }

    async fn row(&self, id: &SandboxId) -> SandboxRow {
        store(self.folder.path())
            .await
            .sandbox(id)
            .await
            .unwrap()
            .unwrap()
    }

    async fn events(&self, id: &SandboxId) -> Vec<Event> {
        let filter = EventFilter {
            sandbox: Some(id.clone()),
            oldest_first: true,
            limit: 10,
            ..EventFilter::default()
        };
        self.control.events(&self.tenant, &filter).await.unwrap()
    }

    async fn killed(&self, id: &SandboxId) -> Vec<Event> {
        let mut events = self.events(id).await;
        events.retain(|event| event.kind == "killed");
        events
    }

    async fn kinds_heard(&self, id: &SandboxId) -> Vec<String> {
        let events = self.events(id).await.into_iter();
        events.map(|event| event.kind).collect()
    }

    /// As events tell them.
    async fn ends_heard(&self, id: &SandboxId) -> Vec<String> {
        let events = self.killed(id).await.into_iter();
        let reason = |event: Event| event.data["reason"].as_str().unwrap().to_owned();
        events.map(reason).collect()
    }

    fn deadline(&self, id: &SandboxId) -> UnixMillis {
        self.node.get(id).unwrap().spec.deadline
    }

    /// The same data folder and node, another server.
    async fn restart(&mut self) {
        // The first one goes before the second comes, as if killed.
        let elsewhere = tempfile::tempdir().unwrap();
        let nobody = Arc::new(MemoryNode::default());
        let other = Control::open(config(), store(elsewhere.path()).await, nobody);
        let killed = Arc::downgrade(&self.control);
        self.control = other.await.unwrap();
        // What it does in the background keeps it, and would record ends beside the next one.
        eventually("the first one is gone", async || killed.strong_count() == 0).await;
        self.control = Control::open(config(), store(self.folder.path()).await, self.node.clone())
            .await
            .unwrap();
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
    }
}

fn keyed(key: &str, body: &str) -> CreateRequest {
    let key = IdempotencyKey::new(key, body.as_bytes()).unwrap();
    CreateRequest {
        idempotency: Some(key),
        ..request()
    }
}

/// Waits for what happens in another task; the bound only ends a broken test.
async fn eventually(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !check().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), waiting)
        .await
        .expect(what);
}

#[tokio::test]
async fn the_first_start_makes_a_key_that_later_starts_keep() {
    let mut world = world().await;
    world.restart().await;
    assert!(
        world
            .control
            .ensure_default_tenant()
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(
        world.control.authenticate(world.key.expose()).unwrap(),
        world.tenant
    );
}

#[tokio::test]
async fn a_deleted_key_is_refused_at_once_and_the_last_one_stays() {
    let World {
        control,
        tenant,
        key,
        folder: _folder,
        ..
    } = world().await;
    let second = control.create_key(&tenant, " ci ").await.unwrap();
    assert_eq!(second.info.name, "ci");
    assert!(control.authenticate(second.key.expose()).is_ok());
    let first = control.list_keys(&tenant)[0].clone();
    control.delete_key(&tenant, &first.id).await.unwrap();
    assert!(matches!(
        control.authenticate(key.expose()),
        Err(Error::Unauthenticated)
    ));
    let last = control.delete_key(&tenant, &second.info.id).await;
    assert!(matches!(last, Err(Error::LastKey)));
}

#[tokio::test]
async fn keys_changed_in_the_store_itself_are_noticed() {
    let world = world().await;
    let beside = store(world.folder.path()).await;
    let first = beside.keys().await.unwrap().remove(0);
    let spare = KeyRow {
        id: "spare".into(),
        // Of 20 zero bytes.
        hash: "$sha256$3kfJsn640wDbtfLDU+Yyw5MmLPBjQMT6fxtAxMvTb5A".into(),
        ..first.clone()
    };
    beside.insert_key(&spare).await.unwrap();
    beside.delete_key(&first.id).await.unwrap();
    let zeros = format!("e2b_{}", "0".repeat(40));
    let accepted = async || world.control.authenticate(&zeros).is_ok();
    eventually("the new key works", accepted).await;
    assert!(world.control.authenticate(world.key.expose()).is_err());
}

#[tokio::test]
async fn the_use_of_a_key_is_remembered_across_a_restart() {
    let mut world = world().await;
    world.control.authenticate(world.key.expose()).unwrap();
    world.control.drain(Duration::from_secs(1)).await;
    world.restart().await;
    assert!(
        world.control.list_keys(&world.tenant)[0]
            .last_used_at
            .is_some()
    );
}

#[tokio::test]
async fn a_secured_sandbox_gets_the_token_derived_from_its_id() {
    let world = world().await;
    let access = world.create(request()).await.unwrap();
    let token = access.access_token.unwrap();
    assert_eq!(token.expose().len(), 64);
    let status = world.node.get(&access.id).unwrap();
    assert_eq!(status.spec.access_token, Some(token));
    assert_eq!(
        status.spec.deadline,
        status.spec.created_at.plus(Duration::from_mins(5))
    );
    let open = world
        .create(CreateRequest {
            secure: false,
            ..request()
        })
        .await
        .unwrap();
    assert_eq!(open.access_token, None);
}

#[tokio::test]
async fn a_failed_create_leaves_no_place_taken_and_says_why_in_its_row() {
    let world = world().await;
    for _ in 0..5 {
        let what = "memory".to_owned();
        world.node.fail_next(NodeError::NoCapacity {
            what,
            retry_after: Duration::from_secs(1),
        });
        let failed = world.create(request()).await;
        assert!(matches!(
            failed,
            Err(Error::Node(NodeError::NoCapacity { .. }))
        ));
    }
    assert!(world.control.list(&world.tenant).is_empty());
    world.make().await;
}

#[tokio::test]
async fn the_limit_of_a_tenant_counts_what_is_live() {
    let world = world().await;
    let first = world.make().await;
    world.make().await;
    world.make().await;
    assert!(matches!(
        world.create(request()).await,
        Err(Error::TooManySandboxes(3))
    ));
    world.control.kill(&world.tenant, &first).await.unwrap();
    world.make().await;
}

#[tokio::test]
async fn a_reservation_that_no_create_uses_is_released() {
    let world = world().await;
    let failures = [
        NodeError::SandboxNotFound("nope".parse().unwrap()),
        NodeError::NoCapacity {
            what: "memory".into(),
            retry_after: Duration::from_secs(1),
        },
    ];
    for (failure, request) in failures.into_iter().zip([request(), keyed("k", "x")]) {
        world.node.fail_next(failure);
        assert!(world.create(request).await.is_err());
        assert!(world.node.reserved().is_empty());
    }
    // Only one of them is the first with its key.
    let same = futures_util::future::join_all((0..6).map(|_| world.create(keyed("k", "y")))).await;
    assert!(same.iter().any(Result::is_ok));
    assert!(world.node.reserved().is_empty());
    // Two are served, and the others find that out at different moments.
    let many = futures_util::future::join_all((0..6).map(|_| world.create(request()))).await;
    let refused = |made: &&Result<_, _>| matches!(made, Err(Error::TooManySandboxes(3)));
    assert_eq!(many.iter().filter(refused).count(), 4);
    assert!(world.node.reserved().is_empty());
    // Whoever is refused anyway takes nothing.
    let asked = world.node.requests().len();
    assert!(world.create(request()).await.is_err());
    assert_eq!(world.node.requests().len(), asked);
}

#[tokio::test]
async fn traffic_wakes_within_the_limit_of_the_tenant_too() {
    let world = world().await;
    let paused = world.make().await;
    let (control, tenant) = (&world.control, &world.tenant);
    control
        .pause(tenant, &paused, PauseMode::Memory, false)
        .await
        .unwrap();
    let other = world.make().await;
    world.make().await;
    world.make().await;
    let (waker, later) = (
        control.waker(),
        UnixMillis::now().plus(Duration::from_mins(5)),
    );
    assert!(matches!(
        waker.wake(&paused, later).await,
        Err(NotWoken::TooMany(3))
    ));
    assert!(world.node.paused(&paused).is_some());
    control.kill(tenant, &other).await.unwrap();
    waker.wake(&paused, later).await.unwrap();
    assert!(world.node.paused(&paused).is_none());
    waker.wake(&paused, later).await.unwrap();
    assert!(matches!(
        world.create(request()).await,
        Err(Error::TooManySandboxes(3))
    ));
}

#[tokio::test]
async fn another_tenant_sees_nothing() {
    let world = world().await;
    let id = world.make().await;
    let stranger = Tenant {
        id: "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap(),
        ..world.tenant.clone()
    };
    let (control, missing) = (&world.control, |result: Result<(), Error>| {
        matches!(result, Err(Error::SandboxNotFound { end: None, .. }))
    });
    assert!(control.list(&stranger).is_empty());
    assert!(missing(control.get(&stranger, &id).await.map(drop)));
    assert!(missing(control.kill(&stranger, &id).await));
    assert!(missing(control.set_timeout(&stranger, &id, 0).await));
    assert!(missing(
        control
            .connect(&stranger, &id, 10, PauseMode::Memory)
            .await
            .map(drop)
    ));
    assert!(missing(control.refresh(&stranger, &id, 10).await));
    assert!(missing(control.metrics(&stranger, &id).await.map(drop)));
    assert!(missing(control.logs(&stranger, &id).await.map(drop)));
    world.control.kill(&world.tenant, &id).await.unwrap();
    assert!(
        missing(control.get(&stranger, &id).await.map(drop)),
        "not even its end"
    );
}

#[tokio::test]
async fn a_killed_sandbox_is_gone_and_its_owner_learns_why() {
    let world = world().await;
    let id = world.make().await;
    world.control.kill(&world.tenant, &id).await.unwrap();
    assert!(world.node.get(&id).is_none());
    assert!(world.control.list(&world.tenant).is_empty());
    let again = world.control.kill(&world.tenant, &id).await.unwrap_err();
    assert!(again.to_string().contains("killed"), "{again}");
    assert_eq!(world.row(&id).await.end.unwrap().reason, EndReason::Killed);
}

#[tokio::test]
async fn of_two_kills_at_once_one_succeeds_and_the_other_waits_for_it() {
    let world = world().await;
    let id = world.make().await;
    let held = world.node.destroying.write().await;
    let kill = || {
        let (control, tenant, id) = (world.control.clone(), world.tenant.clone(), id.clone());
        tokio::spawn(async move { control.kill(&tenant, &id).await })
    };
    let (first, second) = (kill(), kill());
    eventually("the kill begins", async || {
        world.control.list(&world.tenant).is_empty()
    })
    .await;
    let connect = world
        .control
        .connect(&world.tenant, &id, 10, PauseMode::Memory)
        .await;
    assert!(matches!(connect, Err(Error::SandboxEnding { .. })));
    assert!(!first.is_finished() && !second.is_finished());
    drop(held);
    let results = [first.await.unwrap(), second.await.unwrap()];
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    assert!(
        results
            .iter()
            .any(|r| matches!(r, Err(Error::SandboxNotFound { .. })))
    );
}

#[tokio::test]
async fn a_kill_that_the_node_refuses_can_be_tried_again() {
    let world = world().await;
    let id = world.make().await;
    world
        .node
        .fail_next(NodeError::io("disk", std::io::Error::other("gone")));
    assert!(world.control.kill(&world.tenant, &id).await.is_err());
    assert!(world.control.get(&world.tenant, &id).await.is_ok());
    world.control.kill(&world.tenant, &id).await.unwrap();
}

#[tokio::test]
async fn what_ends_on_its_own_is_recorded_with_its_reason() {
    let world = world().await;
    let id = world.make().await;
    world.node.end(&id, EndReason::Died, "envd: signal 9");
    eventually("the end is written", async || {
        world.row(&id).await.end.is_some()
    })
    .await;
    let error = world
        .control
        .get(&world.tenant, &id)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("died: envd: signal 9"), "{error}");
}

#[tokio::test]
async fn an_end_without_an_event_is_found_by_looking() {
    let world = world().await;
    let id = world.make().await;
    world.node.forget(&id);
    in_time("the end is written", async || {
        world.row(&id).await.end.is_some()
    })
    .await;
    assert_eq!(world.ends_heard(&id).await, ["died"]);
}

#[tokio::test]
async fn an_end_whose_event_was_missed_keeps_its_reason() {
    let world = world().await;
    let id = world.make().await;
    world.node.end_unheard(&id, EndReason::Expired, "its time");
    in_time("the end is written", async || {
        world.row(&id).await.end.is_some()
    })
    .await;
    let end = world.row(&id).await.end.unwrap();
    assert_eq!(end.reason, EndReason::Expired);
    assert_eq!(world.ends_heard(&id).await, ["expired"]);
}

#[tokio::test]
async fn an_end_that_nobody_asks_for_any_more_is_forgotten() {
    let world = world().await;
    let spec = stray(world.tenant.id.clone());
    world.node.add(spec.clone());
    world.node.end_unheard(&spec.id, EndReason::Died, "");
    world.node.age_ends();
    in_time("the node forgets", async || {
        let heard = world.killed(&spec.id).await;
        assert!(heard.is_empty(), "it had no row: nobody was told of it");
        world.node.ends() == 0
    })
    .await;
}

/// Every such write fails until it is unjammed, as on a disk that is full.
async fn jam(world: &World, write: &str) -> sqlx::SqlitePool {
    let file = world.folder.path().join("soulbox.db");
    let pool = sqlx::SqlitePool::connect(file.to_str().unwrap())
        .await
        .unwrap();
    let sql = format!("CREATE TRIGGER jam BEFORE {write} BEGIN SELECT RAISE(ABORT, 'full'); END");
    sqlx::query(sqlx::AssertSqlSafe(sql))
        .execute(&pool)
        .await
        .unwrap();
    pool
}

async fn unjam(pool: sqlx::SqlitePool) {
    sqlx::query("DROP TRIGGER jam")
        .execute(&pool)
        .await
        .unwrap();
    pool.close().await;
}

#[tokio::test]
async fn events_that_cannot_be_written_are_written_later_and_an_end_is_kept_until_then() {
    let world = world().await;
    let id = world.make().await;
    assert_eq!(world.kinds_heard(&id).await, ["created"]);
    let jammed = jam(&world, "INSERT ON events").await;
    world.node.die_when_asked(&id, Moment::Before);
    assert_eq!(world.node.unrecorded_ends().await.len(), 1);
    eventually("the end is written", async || {
        world.row(&id).await.end.is_some()
    })
    .await;
    assert_eq!(world.kinds_heard(&id).await, ["created"]);
    assert_eq!(world.node.ends(), 1);

    unjam(jammed).await;
    eventually("the event is written", async || {
        world.kinds_heard(&id).await == ["created", "killed"]
    })
    .await;
    world.node.age_ends();
    in_time("the node forgets", async || {
        assert_eq!(world.kinds_heard(&id).await, ["created", "killed"]);
        world.node.ends() == 0
    })
    .await;
}

#[tokio::test]
async fn a_kill_that_cannot_be_recorded_has_still_happened_and_is_recorded_later() {
    let world = world().await;
    let id = world.make().await;
    let spec = world.node.get(&id).unwrap().spec;
    let jammed = jam(&world, "UPDATE ON sandboxes").await;
    world.control.kill(&world.tenant, &id).await.unwrap();
    assert!(world.control.get(&world.tenant, &id).await.is_err());
    assert!(world.row(&id).await.end.is_none());

    unjam(jammed).await;
    // What the real node keeps of it.
    world.node.add(SandboxSpec::clone(&spec));
    world.node.end_unheard(&id, EndReason::Killed, "");
    world.node.age_ends();
    in_time("the end is written", async || {
        world.row(&id).await.end.is_some()
    })
    .await;
    let end = world.row(&id).await.end.unwrap();
    assert_eq!(end.reason, EndReason::Killed);
    assert_eq!(world.ends_heard(&id).await, ["killed"]);
}

/// The looks are seconds apart: the clock is moved instead of waited for.
async fn in_time(what: &str, mut check: impl AsyncFnMut() -> bool) {
    for _ in 0..1000 {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(2)).await;
        tokio::time::resume();
        if check().await {
            return;
        }
    }
    panic!("{what}: not in time");
}

#[tokio::test]
async fn a_sandbox_past_its_deadline_is_not_shown() {
    let world = world().await;
    let id = world.make().await;
    world.node.set_deadline(&id, UnixMillis(1)).await.unwrap();
    assert!(world.control.list(&world.tenant).is_empty());
    assert!(world.control.get(&world.tenant, &id).await.is_err());
}

#[tokio::test]
async fn connect_only_ever_extends() {
    let world = world().await;
    let id = world.make().await;
    let before = world.deadline(&id);
    world
        .control
        .connect(&world.tenant, &id, 10, PauseMode::Memory)
        .await
        .unwrap();
    assert_eq!(world.deadline(&id), before);
    world
        .control
        .connect(&world.tenant, &id, -1, PauseMode::Memory)
        .await
        .unwrap();
    assert_eq!(world.deadline(&id), before);
    world
        .control
        .connect(&world.tenant, &id, 600, PauseMode::Memory)
        .await
        .unwrap();
    assert!(world.deadline(&id) > before);
    let too_long = world
        .control
        .connect(
            &world.tenant,
            &"nope".parse().unwrap(),
            86_401,
            PauseMode::Memory,
        )
        .await;
    assert!(
        matches!(too_long, Err(Error::Invalid(_))),
        "checked before existence"
    );
}

#[tokio::test]
async fn set_timeout_moves_the_end_both_ways_but_not_past_the_longest_life() {
    let world = world().await;
    let id = world.make().await;
    let before = world.deadline(&id);
    world
        .control
        .set_timeout(&world.tenant, &id, 10)
        .await
        .unwrap();
    assert!(world.deadline(&id) < before);
    world
        .control
        .set_timeout(&world.tenant, &id, i64::MAX)
        .await
        .unwrap();
    let created = world.node.get(&id).unwrap().spec.created_at;
    assert_eq!(world.deadline(&id), created.plus(DAY));
    world.node.set_created_at(&id, UnixMillis(0));
    let exceeded = world
        .control
        .set_timeout(&world.tenant, &id, 10)
        .await
        .unwrap_err();
    assert_eq!(exceeded.to_string(), "Max instance length exceeded");
}

#[tokio::test]
async fn a_timeout_of_zero_or_less_ends_it_at_once() {
    let world = world().await;
    for seconds in [0, -5, i64::MIN] {
        let id = world.make().await;
        world
            .control
            .set_timeout(&world.tenant, &id, seconds)
            .await
            .unwrap();
        assert!(world.node.get(&id).is_none());
        assert_eq!(world.row(&id).await.end.unwrap().reason, EndReason::Expired);
    }
}

#[tokio::test]
async fn a_refresh_extends_by_at_least_15_seconds_and_at_most_an_hour() {
    let world = world().await;
    let id = world
        .create(CreateRequest {
            timeout: 1,
            ..request()
        })
        .await
        .unwrap()
        .id;
    let now = UnixMillis::now();
    world.control.refresh(&world.tenant, &id, 0).await.unwrap();
    assert!(world.deadline(&id) >= now.plus(Duration::from_secs(15)));
    for bad in [-1, 3601] {
        assert!(
            world
                .control
                .refresh(&world.tenant, &id, bad)
                .await
                .is_err()
        );
    }
}

#[tokio::test]
async fn a_create_whose_client_went_away_is_finished() {
    let world = world().await;
    let held = world.node.creating.write().await;
    let (control, tenant) = (world.control.clone(), world.tenant.clone());
    let client =
        tokio::spawn(async move { control.create_sandbox(&tenant, keyed("k", "x")).await });
    eventually("the node is asked", async || {
        world.node.creates.load(Ordering::Relaxed) == 1
    })
    .await;
    client.abort();
    let early = world.create(keyed("k", "x")).await;
    assert!(matches!(early, Err(Error::IdempotencyInProgress)));
    drop(held);
    eventually("it runs", async || {
        world.control.list(&world.tenant).len() == 1
    })
    .await;
    let access = world.create(keyed("k", "x")).await.unwrap();
    assert_eq!(access.id, world.control.list(&world.tenant)[0].spec.id);
    assert_eq!(world.node.creates.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn one_idempotency_key_makes_one_sandbox_even_at_the_limit() {
    let world = world().await;
    let first = world.create(keyed("k", "x")).await.unwrap();
    world.make().await;
    world.make().await;
    let again = world.create(keyed("k", "x")).await.unwrap();
    assert_eq!(
        (again.id, again.access_token),
        (first.id, first.access_token)
    );
    let other = world.create(keyed("k", "y")).await;
    assert!(matches!(other, Err(Error::IdempotencyMismatch)));
}

#[tokio::test]
async fn the_key_of_a_failed_create_can_be_used_again() {
    let world = world().await;
    world.node.fail_next(NodeError::Start {
        step: "mount".into(),
        message: "no".into(),
    });
    assert!(world.create(keyed("k", "x")).await.is_err());
    world.create(keyed("k", "x")).await.unwrap();
}

#[test]
fn idempotency_keys_have_a_shape() {
    for bad in ["", "A", "a_b", "é", &"a".repeat(256)] {
        assert!(IdempotencyKey::new(bad, b"").is_err(), "{bad}");
    }
}

#[tokio::test]
async fn a_restart_keeps_what_runs_and_marks_what_is_lost() {
    let mut world = world().await;
    let (kept, lost) = (world.make().await, world.make().await);
    world.node.forget(&lost);
    world.restart().await;
    let ids: Vec<_> = world
        .control
        .list(&world.tenant)
        .into_iter()
        .map(|status| status.spec.id.clone())
        .collect();
    assert_eq!(ids, [kept]);
    assert_eq!(world.row(&lost).await.end.unwrap().reason, EndReason::Lost);
    assert_eq!(world.ends_heard(&lost).await, ["lost"]);
}

#[tokio::test]
async fn what_ended_while_no_server_was_there_is_told_as_if_one_had_been() {
    let mut world = world().await;
    let (seen, unseen) = (world.make().await, world.make().await);
    world.node.end(&seen, EndReason::Died, "signal 9");
    eventually("the end is written", async || {
        world.row(&seen).await.end.is_some()
    })
    .await;
    world.node.end_unheard(&unseen, EndReason::Died, "signal 9");
    world.restart().await;
    let error = world.control.get(&world.tenant, &unseen).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("died: signal 9"), "{error}");

    let [one, other] = [world.killed(&seen).await, world.killed(&unseen).await];
    let shape = |event: &Event| {
        let mut data = event.data.clone();
        for varies in ["started_at", "execution_time"] {
            let execution = data["execution"].as_object_mut().unwrap();
            assert!(execution.remove(varies).is_some());
        }
        (data, event.template.clone(), event.build.clone())
    };
    assert_eq!((one.len(), other.len()), (1, 1));
    assert_eq!(shape(&one[0]), shape(&other[0]));
}

#[tokio::test]
async fn the_node_forgets_an_end_when_it_and_its_event_are_on_record_and_nobody_hears_it_twice() {
    let mut world = world().await;
    let (killed, died) = (world.make().await, world.make().await);
    world.control.kill(&world.tenant, &killed).await.unwrap();
    assert_eq!(world.ends_heard(&killed).await, ["killed"]);
    // As if the server had died before the node was told that the end is on record.
    world.node.add(SandboxSpec {
        id: killed.clone(),
        ..stray(world.tenant.id.clone())
    });
    world.node.end_unheard(&killed, EndReason::Killed, "");
    world.node.end_unheard(&died, EndReason::Died, "signal 9");
    for _ in 0..2 {
        world.restart().await;
        eventually("the node forgets", async || world.node.ends() == 0).await;
    }
    assert_eq!(world.ends_heard(&killed).await, ["killed"]);
    assert_eq!(world.ends_heard(&died).await, ["died"]);
}

#[tokio::test]
async fn one_that_dies_while_a_server_starts_is_told_once() {
    let mut world = world().await;
    for moment in [Moment::Before, Moment::After] {
        let id = world.make().await;
        world.node.die_when_asked(&id, moment);
        world.restart().await;
        eventually("the node forgets", async || world.node.ends() == 0).await;
        let end = world.row(&id).await.end.unwrap();
        assert_eq!((end.reason, &*end.detail), (EndReason::Died, "signal 9"));
        assert_eq!(world.ends_heard(&id).await, ["died"], "{moment:?}");
    }
}

#[tokio::test]
async fn a_creation_whose_event_was_lost_with_its_server_is_told_by_the_next() {
    let mut world = world().await;
    let described = world.make().await;
    let untold = || stray(world.tenant.id.clone());
    let (runs, ended, recorded) = (untold(), untold(), untold());
    for spec in [&runs, &ended, &recorded] {
        record(&world, spec).await;
        world.node.add(spec.clone());
    }
    world.node.end_unheard(&ended.id, EndReason::Died, "");
    world.node.end_unheard(&recorded.id, EndReason::Died, "");
    let end = EndRow::now(EndReason::Died, "");
    let store = store(world.folder.path()).await;
    store.end_sandbox(&recorded.id, &end).await.unwrap();
    for _ in 0..2 {
        world.restart().await;
        assert_eq!(world.kinds_heard(&described).await, ["created"]);
        assert_eq!(world.kinds_heard(&runs.id).await, ["created"]);
        for id in [&ended.id, &recorded.id] {
            assert_eq!(world.kinds_heard(id).await, ["created", "killed"]);
        }
    }
    let event = world.events(&runs.id).await.remove(0);
    assert_eq!(event.at, runs.created_at);
}

#[tokio::test]
async fn a_creation_that_was_told_long_ago_is_not_told_again() {
    let mut world = world().await;
    let old = SandboxSpec {
        created_at: UnixMillis(UnixMillis::now().0 - 120_000),
        ..stray(world.tenant.id.clone())
    };
    record(&world, &old).await;
    world.node.add(old.clone());
    // The last server wrote this event, so it had written those before as well.
    let newer = world.make().await;
    assert_eq!(world.kinds_heard(&newer).await, ["created"]);
    world.restart().await;
    assert!(world.kinds_heard(&old.id).await.is_empty());
}

#[tokio::test]
async fn what_never_came_to_be_ends_without_an_event() {
    let mut world = world().await;
    let (half_made, not_made) = (
        stray(world.tenant.id.clone()),
        stray(world.tenant.id.clone()),
    );
    for spec in [&half_made, &not_made] {
        record(&world, spec).await;
    }
    world.node.add(half_made.clone());
    let id = &half_made.id;
    world
        .node
        .end_unheard(id, EndReason::CreateFailed, "the server stopped");
    world.restart().await;
    let end = |row: SandboxRow| row.end.unwrap().reason;
    assert_eq!(end(world.row(id).await), EndReason::CreateFailed);
    assert_eq!(end(world.row(&not_made.id).await), EndReason::Lost);
    for spec in [&half_made, &not_made] {
        assert!(world.events(&spec.id).await.is_empty());
    }
}

fn row_of(spec: &SandboxSpec) -> SandboxRow {
    SandboxRow {
        id: spec.id.clone(),
        tenant: spec.tenant.clone(),
        template: spec.template.clone(),
        metadata: BTreeMap::new(),
        created_at: spec.created_at,
        end: None,
    }
}

async fn record(world: &World, spec: &SandboxSpec) {
    let store = store(world.folder.path()).await;
    store.insert_sandbox(&row_of(spec)).await.unwrap();
}

fn stray(tenant: TenantId) -> SandboxSpec {
    SandboxSpec {
        id: SandboxId::random(),
        tenant,
        tier: soulbox_types::Tier::default(),
        template: "basebasebasebasebase".parse().unwrap(),
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
        node_token: Secret::random(),
        created_at: UnixMillis::now(),
        deadline: UnixMillis::now().plus(DAY),
    }
}

#[tokio::test]
async fn a_sandbox_without_a_row_is_recorded_for_a_known_tenant_and_destroyed_otherwise() {
    let mut world = world().await;
    let known = stray(world.tenant.id.clone());
    let unknown = stray("01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap());
    world.node.add(known.clone());
    world.node.add(unknown.clone());
    world.restart().await;
    assert!(world.control.get(&world.tenant, &known.id).await.is_ok());
    assert!(world.row(&known.id).await.end.is_none());
    assert!(world.node.get(&unknown.id).is_none());
}

#[tokio::test]
async fn after_a_crash_during_create_the_outcome_is_found_or_honestly_unknown() {
    let mut world = world().await;
    let store = store(world.folder.path()).await;
    for (key, runs) in [("here", true), ("gone", false)] {
        let spec = stray(world.tenant.id.clone());
        let row = row_of(&spec);
        let record = soulbox_store::IdempotencyRecord {
            tenant: world.tenant.id.clone(),
            key: key.into(),
            // sha256 of "x"
            fingerprint: "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881".into(),
        };
        store
            .insert_sandbox_once(&row, &record, UnixMillis(0))
            .await
            .unwrap();
        if runs {
            world.node.add(spec);
        }
    }
    world.restart().await;
    assert!(world.create(keyed("here", "x")).await.is_ok());
    let unknown = world.create(keyed("gone", "x")).await;
    assert!(matches!(unknown, Err(Error::IdempotencyOutcomeUnknown)));
    assert_eq!(world.node.creates.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn names_that_mean_no_template_are_told_apart() {
    let world = world().await;
    let with = |template: &str| CreateRequest {
        template: template.into(),
        tier: None,
        ..request()
    };
    for (name, message) in [
        ("nope", "template 'nope' not found"),
        ("default/base", "template 'default/base' not found"),
        ("base:v2", "tag 'v2' does not exist for template 'base'"),
        (
            "a b",
            "Invalid template reference: names consist of a-z, 0-9, - and _",
        ),
    ] {
        assert_eq!(
            world.create(with(name)).await.unwrap_err().to_string(),
            message
        );
    }
    for name in ["Base", "base:default", "basebasebasebasebase"] {
        world.create(with(name)).await.unwrap();
    }
    assert_eq!(world.control.templates(&world.tenant)[0].spawn_count, 3);
}

#[tokio::test]
async fn absurd_maps_are_refused_before_anything_is_made() {
    let world = world().await;
    let map = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    let huge = "x".repeat(65 * 1024);
    for bad in [
        CreateRequest {
            metadata: map("k", &huge),
            ..request()
        },
        CreateRequest {
            env: map("k", &huge),
            ..request()
        },
        CreateRequest {
            env: map("", "v"),
            ..request()
        },
        CreateRequest {
            env: map("a=b", "v"),
            ..request()
        },
        CreateRequest {
            env: map("a\0", "v"),
            ..request()
        },
        CreateRequest {
            env: map("a", "v\0"),
            ..request()
        },
    ] {
        assert!(matches!(world.create(bad).await, Err(Error::Invalid(_))));
    }
    assert_eq!(world.node.creates.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn the_tier_is_the_requests_then_the_snapshots_the_tenants_and_the_servers() {
    let world = world().await;
    let with = |tier, template: &str| CreateRequest {
        tier,
        template: template.to_owned(),
        ..request()
    };
    let tier_of = |made: &Access| world.node.get(&made.id).unwrap().spec.tier;

    let made = world.create(with(None, "base")).await.unwrap();
    assert_eq!(tier_of(&made), Tier::Jail, "the server's");

    let strict = Tenant {
        tier: Some(Tier::Gvisor),
        ..world.tenant.clone()
    };
    let create = |request| world.control.create_sandbox(&strict, request);
    let made = create(with(None, "base")).await.unwrap();
    assert_eq!(tier_of(&made), Tier::Gvisor, "the tenant's");
    let snapshot = world
        .control
        .create_snapshot(&strict, &made.id, Some("walled"))
        .await
        .unwrap();
    world.control.kill(&strict, &made.id).await.unwrap();

    let made = world
        .create(with(None, snapshot.template.as_str()))
        .await
        .unwrap();
    assert_eq!(tier_of(&made), Tier::Gvisor, "its copies are not weaker");
    world.control.kill(&world.tenant, &made.id).await.unwrap();

    let asked = with(Some(Tier::Microvm), snapshot.template.as_str());
    assert_eq!(tier_of(&create(asked).await.unwrap()), Tier::Microvm);
}

#[tokio::test]
async fn a_tier_that_the_node_does_not_have_is_refused_with_its_reason() {
    let world = world().await;
    world.node.fail_next(NodeError::TierUnavailable {
        tier: Tier::Gvisor,
        reason: "runsc is not installed".to_owned(),
    });
    let asked = CreateRequest {
        tier: Some(Tier::Gvisor),
        ..request()
    };
    let error = world.create(asked).await.unwrap_err();
    let problem = error.problem();
    assert_eq!(problem.code.as_str(), "tier_unavailable");
    assert!(problem.to_string().contains("runsc is not installed"));
    assert!(world.node.list().is_empty());
}
