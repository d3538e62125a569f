//! What admission control promises, with a runtime that keeps its sandboxes in memory and a machine whose
//! memory is what the test says.

#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

#[path = "support/machine.rs"]
mod machine;

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use machine::{FakeMemory, LONG, Machine, config, ends_dir, snapshots_dir, spec};
use parking_lot::Mutex;
use soulbox_node::{LocalNode, NodeConfig, Resource};
use soulbox_runtime::{Error, Node, Result, SandboxStatus};
use soulbox_types::{EndReason, PauseMode, SandboxId, SandboxSpec, SandboxState, UnixMillis};
use tokio::{sync::Notify, task::JoinHandle};

/// What admission control takes a sandbox to need.
const ONE_MIB: u64 = 24;
const SHORT: Duration = Duration::from_millis(200);
/// Longer than a test takes.
const PATIENT: Duration = Duration::from_secs(20);

struct World {
    folder: tempfile::TempDir,
    machine: Arc<Machine>,
    memory: Arc<FakeMemory>,
    node: Arc<LocalNode>,
}

impl Drop for World {
    fn drop(&mut self) {
        for name in [
            self.folder.path().with_extension("builds"),
            snapshots_dir(self.folder.path()),
            ends_dir(self.folder.path()),
        ] {
            let _absent = std::fs::remove_dir_all(name);
        }
    }
}

impl World {
    async fn new(bound_mib: u64, change: impl FnOnce(&mut NodeConfig)) -> Self {
        Self::using(0, bound_mib, change).await
    }

    async fn using(used_mib: u64, bound_mib: u64, change: impl FnOnce(&mut NodeConfig)) -> Self {
        let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::<Machine>::default());
        let memory = FakeMemory::new(&machine, used_mib, bound_mib);
        let mut config = config(folder.path());
        config.admission.wait = SHORT;
        config.admission.gauge = Arc::clone(&memory) as _;
        change(&mut config);
        let node = machine::open(config, &machine).await;
        Self {
            folder,
            machine,
            memory,
            node,
        }
    }

    fn create(&self, request: SandboxSpec) -> JoinHandle<Result<SandboxStatus>> {
        let node = Arc::clone(&self.node);
        tokio::spawn(async move { node.create(request).await })
    }

    async fn destroy(&self, id: &SandboxId) {
        self.node.destroy(id, EndReason::Killed).await.unwrap();
    }

    fn shut(&self) -> Arc<Notify> {
        let gate = Arc::new(Notify::new());
        *self.machine.gate.lock() = Some(Arc::clone(&gate));
        gate
    }

    fn open(&self, gate: &Notify) {
        *self.machine.gate.lock() = None;
        gate.notify_waiters();
    }

    async fn until(&self, what: impl Fn(&LocalNode) -> bool) {
        let start = Instant::now();
        while !what(&self.node) {
            assert!(
                start.elapsed() < PATIENT,
                "{:?}",
                self.node.admission_stats()
            );
            tokio::task::yield_now().await;
        }
    }

    async fn waiting(&self, count: u64) {
        self.until(|node| node.admission_stats().waiting == count)
            .await;
    }

    async fn starting(&self, count: u64) {
        self.until(|node| node.admission_stats().starting == count)
            .await;
    }

    fn refused(&self, resource: Resource) -> u64 {
        let refused = self.node.admission_stats().refused;
        refused
            .iter()
            .find(|(each, _)| *each == resource)
            .unwrap()
            .1
    }

    fn folders(&self) -> usize {
        std::fs::read_dir(self.folder.path()).unwrap().count()
    }
}

fn why<T: std::fmt::Debug>(result: Result<T>) -> String {
    match result {
        Err(Error::NoCapacity { what, retry_after }) => {
            assert!(!retry_after.is_zero());
            what
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_does_not_fit_waits_and_is_then_refused_with_resource_and_amounts() {
    let world = World::using(980, 1000, |_| {}).await;
    let start = Instant::now();
    let what = why(world.node.create(spec(LONG)).await);
    assert!(start.elapsed() >= SHORT);
    assert_eq!(
        what,
        "memory: a sandbox needs about 24 MiB, but 980 of 1000 MiB of the machine are in use and \
         0 MiB are set aside for sandboxes that are being started"
    );
    assert_eq!(world.refused(Resource::Memory), 1);
    assert!(world.node.list().is_empty() && world.folders() == 0);
    assert_eq!(world.node.admission_stats().waiting, 0);
    world.memory.set(900);
    world.node.create(spec(LONG)).await.unwrap();
}

#[tokio::test]
async fn who_waits_is_served_as_soon_as_a_sandbox_has_ended() {
    let world = World::new(1000, |config| {
        config.max_sandboxes = 1;
        config.admission.wait = PATIENT;
    })
    .await;
    let first = world.node.create(spec(LONG)).await.unwrap();
    let second = world.create(spec(LONG));
    world.waiting(1).await;
    let start = Instant::now();
    world.destroy(&first.spec.id).await;
    second.await.unwrap().unwrap();
    assert!(start.elapsed() < PATIENT / 2);
    assert_eq!(world.node.list().len(), 1);
}

#[tokio::test]
async fn who_waits_for_memory_is_served_when_there_is_some_again() {
    let world = World::using(1000, 1000, |config| config.admission.wait = PATIENT).await;
    let waits = world.create(spec(LONG));
    world.waiting(1).await;
    world.memory.set(500);
    waits.await.unwrap().unwrap();
}

#[tokio::test]
async fn those_who_wait_are_served_in_order() {
    let world = World::new(1000, |config| {
        config.max_sandboxes = 1;
        config.admission.wait = PATIENT;
    })
    .await;
    let first = world.node.create(spec(LONG)).await.unwrap();
    let served = Arc::new(Mutex::new(Vec::new()));
    let (mut asked, mut waiting) = (Vec::new(), Vec::new());
    for count in 1..=5 {
        let request = spec(LONG);
        asked.push(request.id.clone());
        let (node, served) = (Arc::clone(&world.node), Arc::clone(&served));
        waiting.push(tokio::spawn(async move {
            let status = node.create(request).await.unwrap();
            served.lock().push(status.spec.id.clone());
        }));
        world.waiting(count).await;
    }
    world.destroy(&first.spec.id).await;
    for (id, create) in asked.iter().zip(waiting) {
        create.await.unwrap();
        assert_eq!(served.lock().last(), Some(id));
        world.destroy(id).await;
    }
    assert_eq!(*served.lock(), asked);
}

#[tokio::test]
async fn only_so_many_are_started_at_the_same_time() {
    let world = World::new(100_000, |config| config.admission.starts = 2).await;
    let gate = world.shut();
    let creates: Vec<_> = (0..6).map(|_| world.create(spec(LONG))).collect();
    world.waiting(4).await;
    assert_eq!(world.node.admission_stats().starting, 2);
    assert_eq!(world.node.list().len(), 6, "all are there to be asked for");
    assert!(
        world
            .node
            .list()
            .iter()
            .all(|each| each.state == SandboxState::Creating)
    );
    world.until(|_| world.folders() == 2).await;
    world.open(&gate);
    for create in creates {
        create.await.unwrap().unwrap();
    }
    assert_eq!(world.node.admission_stats().starting, 0);
}

#[tokio::test]
async fn what_creates_under_way_will_need_is_kept_for_them() {
    let world = World::new(2 * ONE_MIB + 10, |_| {}).await;
    let gate = world.shut();
    let under_way = [world.create(spec(LONG)), world.create(spec(LONG))];
    world.starting(2).await;
    let what = why(world.node.create(spec(LONG)).await);
    assert!(what.contains("48 MiB are set aside"), "{what}");
    world.open(&gate);
    for create in under_way {
        create.await.unwrap().unwrap();
    }
    // They turned out to need nothing.
    world.node.create(spec(LONG)).await.unwrap();
}

#[tokio::test]
async fn a_create_that_fails_gives_back_what_was_set_aside() {
    let world = World::new(ONE_MIB, |_| {}).await;
    *world.machine.fail_creates.lock() = true;
    for _ in 0..3 {
        let failed = world.node.create(spec(LONG)).await;
        assert!(matches!(failed, Err(Error::Start { .. })), "{failed:?}");
    }
    *world.machine.fail_creates.lock() = false;
    world.node.create(spec(LONG)).await.unwrap();
    let stats = world.node.admission_stats();
    assert_eq!((stats.waiting, stats.starting), (0, 0));
}

#[tokio::test]
async fn one_that_is_ended_while_it_waits_leaves_nothing_and_blocks_nobody() {
    let world = World::new(1000, |config| {
        config.max_sandboxes = 1;
        config.admission.wait = PATIENT;
    })
    .await;
    let first = world.node.create(spec(LONG)).await.unwrap();
    let (head, behind) = (spec(LONG), spec(LONG));
    let mut waiting = Vec::new();
    for (count, request) in [&head, &behind].into_iter().enumerate() {
        waiting.push(world.create(request.clone()));
        world.waiting(count as u64 + 1).await;
    }
    let last = world.create(spec(LONG));
    world.waiting(3).await;
    let start = Instant::now();
    for (request, create) in [behind, head].iter().zip(waiting.into_iter().rev()) {
        world.destroy(&request.id).await;
        let ended = create.await.unwrap();
        assert!(matches!(ended, Err(Error::SandboxNotFound(_))), "{ended:?}");
        assert!(world.node.get(&request.id).is_none());
    }
    world.destroy(&first.spec.id).await;
    last.await.unwrap().unwrap();
    assert!(start.elapsed() < PATIENT / 2);
    assert_eq!((world.node.list().len(), world.folders()), (1, 1));
    assert_eq!(world.node.admission_stats().waiting, 0);
}

#[tokio::test]
async fn a_full_machine_refuses_a_whole_burst_after_one_wait() {
    let world = World::using(1000, 1000, |_| {}).await;
    let start = Instant::now();
    let burst: Vec<_> = (0..100).map(|_| world.create(spec(LONG))).collect();
    for create in burst {
        assert!(why(create.await.unwrap()).starts_with("memory"));
    }
    assert!(start.elapsed() < 50 * SHORT, "{:?}", start.elapsed());
    assert_eq!(world.refused(Resource::Memory), 100);
    assert!(world.node.list().is_empty());
}

#[tokio::test]
async fn a_burst_that_fits_is_served_whole_with_few_looks_at_the_machine() {
    let world = World::new(1_000_000, |config| config.max_sandboxes = 500).await;
    let start = Instant::now();
    let burst: Vec<_> = (0..500).map(|_| world.create(spec(LONG))).collect();
    for create in burst {
        create.await.unwrap().unwrap();
    }
    let most = start.elapsed().as_millis() / 50 + 5;
    let looks = world.memory.looks.load(Ordering::SeqCst);
    assert!(
        u128::from(looks) <= most,
        "{looks} in {:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn promised_memory_counts_also_while_it_is_paused_and_not_when_it_is_given_up() {
    let world = World::new(1_000_000, |config| {
        config.admission.overcommit.memory_bytes = Some(1024 << 20);
    })
    .await;
    let (first, second) = (spec(LONG), spec(LONG));
    world.node.create(first.clone()).await.unwrap();
    world.node.create(second.clone()).await.unwrap();
    let what = why(world.node.create(spec(LONG)).await);
    assert!(
        what.contains("may use 512 MiB, and 1024 of 1024 MiB are promised"),
        "{what}"
    );
    world
        .node
        .pause(&first.id, PauseMode::Memory)
        .await
        .unwrap();
    why(world.node.create(spec(LONG)).await);
    world
        .node
        .pause(&second.id, PauseMode::Filesystem)
        .await
        .unwrap();
    let third = world.node.create(spec(LONG)).await.unwrap();

    // What is paused on its disk comes back only when there is room, and stays paused until then.
    let later = UnixMillis::now().plus(LONG);
    why(world
        .node
        .resume(&second.id, later, PauseMode::Memory)
        .await);
    assert_eq!(
        world.node.get(&second.id).unwrap().state,
        SandboxState::Paused
    );
    world
        .node
        .resume(&first.id, later, PauseMode::Memory)
        .await
        .unwrap();
    world.destroy(&third.spec.id).await;
    world
        .node
        .resume(&second.id, later, PauseMode::Memory)
        .await
        .unwrap();
    assert_eq!(world.refused(Resource::PromisedMemory), 3);
}

#[tokio::test]
async fn promised_cpu_is_free_while_a_sandbox_is_paused() {
    let world = World::new(1_000_000, |config| {
        config.admission.overcommit.cpu_millis = Some(2000);
    })
    .await;
    let first = spec(LONG);
    world.node.create(first.clone()).await.unwrap();
    let what = why(world.node.create(spec(LONG)).await);
    assert!(
        what.contains("may use 2.00 cpus, and 2.00 of 2.00"),
        "{what}"
    );
    world
        .node
        .pause(&first.id, PauseMode::Memory)
        .await
        .unwrap();
    let second = world.node.create(spec(LONG)).await.unwrap();
    let later = UnixMillis::now().plus(LONG);
    why(world.node.resume(&first.id, later, PauseMode::Memory).await);
    world.destroy(&second.spec.id).await;
    world
        .node
        .resume(&first.id, later, PauseMode::Memory)
        .await
        .unwrap();
}

#[tokio::test]
async fn what_can_never_fit_is_refused_at_once() {
    let world = World::new(1_000_000, |config| {
        config.admission.wait = PATIENT;
        config.admission.overcommit.memory_bytes = Some(256 << 20);
    })
    .await;
    let start = Instant::now();
    let Err(Error::TooLarge { what }) = world.node.create(spec(LONG)).await else {
        panic!("it cannot fit, and waiting does not help");
    };
    assert!(start.elapsed() < PATIENT / 2);
    assert!(what.contains("256 MiB may be promised"), "{what}");
    assert_eq!(world.refused(Resource::PromisedMemory), 1);
}

#[tokio::test]
async fn a_place_is_free_while_its_sandbox_rests_on_disk() {
    let world = World::new(1_000_000, |config| config.max_sandboxes = 1).await;
    let first = spec(LONG);
    world.node.create(first.clone()).await.unwrap();
    let what = why(world.node.create(spec(LONG)).await);
    assert_eq!(what, "sandboxes: 1 of 1 are here (--max-sandboxes)");
    world
        .node
        .pause(&first.id, PauseMode::Filesystem)
        .await
        .unwrap();
    let second = world.node.create(spec(LONG)).await.unwrap();
    let later = UnixMillis::now().plus(LONG);
    why(world.node.resume(&first.id, later, PauseMode::Memory).await);
    world.destroy(&second.spec.id).await;
    world
        .node
        .resume(&first.id, later, PauseMode::Memory)
        .await
        .unwrap();
    why(world.node.create(spec(LONG)).await);
    assert_eq!(world.refused(Resource::Sandboxes), 3);
}

#[tokio::test]
async fn a_restart_that_fails_rests_on_and_holds_nothing() {
    let world = World::new(1_000_000, |config| config.max_sandboxes = 1).await;
    let first = spec(LONG);
    world.node.create(first.clone()).await.unwrap();
    world
        .node
        .pause(&first.id, PauseMode::Filesystem)
        .await
        .unwrap();
    *world.machine.fail_creates.lock() = true;
    let later = UnixMillis::now().plus(LONG);
    assert!(
        world
            .node
            .resume(&first.id, later, PauseMode::Memory)
            .await
            .is_err()
    );
    *world.machine.fail_creates.lock() = false;
    assert_eq!(
        world.node.paused(&first.id).unwrap().kept,
        PauseMode::Filesystem
    );
    world.node.create(spec(LONG)).await.unwrap();
}

#[tokio::test]
async fn whoever_waits_is_told_when_the_server_stops() {
    let world = World::using(1000, 1000, |config| config.admission.wait = PATIENT).await;
    let waits = [world.create(spec(LONG)), world.create(spec(LONG))];
    world.waiting(2).await;
    let start = Instant::now();
    world.node.close_admission();
    for create in waits {
        assert!(why(create.await.unwrap()).contains("the server stops"));
    }
    assert!(start.elapsed() < PATIENT / 2);
    world.memory.set(0);
    assert!(why(world.node.create(spec(LONG)).await).contains("the server stops"));
    assert!(world.node.list().is_empty() && world.folders() == 0);
}
