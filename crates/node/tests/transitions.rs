//! Moves between states that fail halfway, or meet each other: what is told is what is, one disk has
//! at most one tree of processes, and a sandbox ends once.

#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use soulbox_node::LocalNode;
use soulbox_runtime::{Error, Node, NodeEvent};
use soulbox_types::{EndReason, PauseMode, SandboxId, SandboxState, UnixMillis};
use tokio::{
    sync::{Notify, broadcast},
    task::JoinHandle,
};

#[path = "support/machine.rs"]
mod machine;

use machine::{Fails, LONG, Machine, config, spec};

struct World {
    folder: tempfile::TempDir,
    machine: Arc<Machine>,
    node: Arc<LocalNode>,
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let machine = Arc::default();
        let node = machine::open(config(folder.path()), &machine).await;
        Self {
            folder,
            machine,
            node,
        }
    }

    async fn paused(&self, keep: PauseMode) -> SandboxId {
        let id = self.node.create(spec(LONG)).await.unwrap().spec.id.clone();
        self.node.pause(&id, keep).await.unwrap();
        id
    }

    async fn resume(&self, id: &SandboxId) -> soulbox_runtime::Result<PauseMode> {
        let later = UnixMillis::now().plus(LONG);
        self.node.resume(id, later, PauseMode::Memory).await
    }

    /// When this returns its end has begun, and waits for what is under way.
    async fn begin_to_kill(&self, id: &SandboxId) -> JoinHandle<soulbox_runtime::Result<()>> {
        let (node, target) = (Arc::clone(&self.node), id.clone());
        let killing = tokio::spawn(async move { node.destroy(&target, EndReason::Killed).await });
        while self.node.get(id).is_some() {
            tokio::task::yield_now().await;
        }
        killing
    }

    fn file(&self, id: &SandboxId, name: &str) -> PathBuf {
        self.folder.path().join(id.as_str()).join(name)
    }

    fn state(&self, id: &SandboxId) -> SandboxState {
        self.node.get(id).unwrap().state
    }

    fn runs(&self, id: &SandboxId) -> bool {
        let alive = self.machine.alive.lock().contains_key(id);
        alive && !self.machine.frozen.lock().contains(id)
    }
}

/// A folder where a file should be stands for a disk that cannot take it.
fn make_unwritable(path: &Path) {
    std::fs::create_dir(path.with_extension("json.new")).unwrap();
}

fn make_writable(path: &Path) {
    std::fs::remove_dir(path.with_extension("json.new")).unwrap();
}

/// And one in place of a file cannot be removed as a file.
fn make_unremovable(path: &Path) {
    std::fs::remove_file(path).unwrap();
    std::fs::create_dir(path).unwrap();
}

async fn ends(events: &mut broadcast::Receiver<NodeEvent>) -> Vec<EndReason> {
    let mut reasons = Vec::new();
    // As long as anything is still on its way.
    while let Ok(event) = tokio::time::timeout(Duration::from_millis(300), events.recv()).await {
        if let NodeEvent::Ended { reason, .. } = event.unwrap() {
            reasons.push(reason);
        }
    }
    reasons
}

#[tokio::test]
async fn a_resume_from_files_without_room_for_its_deadline_starts_nothing() {
    let world = World::new().await;
    let id = world.paused(PauseMode::Filesystem).await;
    make_unwritable(&world.file(&id, "lease.json"));
    assert!(matches!(world.resume(&id).await, Err(Error::Io { .. })));
    assert_eq!(world.state(&id), SandboxState::Paused);
    assert!(!world.runs(&id), "it is told as paused");

    make_writable(&world.file(&id, "lease.json"));
    assert_eq!(world.resume(&id).await.unwrap(), PauseMode::Filesystem);
    assert_eq!(world.machine.second_starts.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_resume_from_memory_without_room_for_its_deadline_thaws_nothing() {
    let world = World::new().await;
    let id = world.paused(PauseMode::Memory).await;
    make_unwritable(&world.file(&id, "lease.json"));
    assert!(matches!(world.resume(&id).await, Err(Error::Io { .. })));
    assert_eq!(world.state(&id), SandboxState::Paused);
    assert!(!world.runs(&id), "nobody would end it at its deadline");

    make_writable(&world.file(&id, "lease.json"));
    assert_eq!(world.resume(&id).await.unwrap(), PauseMode::Memory);
    assert!(world.runs(&id));
    world.node.pause(&id, PauseMode::Memory).await.unwrap();
}

#[tokio::test]
async fn a_resume_that_cannot_be_put_on_record_is_taken_back() {
    for keep in [PauseMode::Memory, PauseMode::Filesystem] {
        let world = World::new().await;
        let id = world.paused(keep).await;
        let before = world.node.get(&id).unwrap().spec.deadline;
        let record = world.file(&id, "paused.json");
        make_unremovable(&record);
        assert!(matches!(world.resume(&id).await, Err(Error::Io { .. })));
        assert_eq!(world.state(&id), SandboxState::Paused);
        assert!(!world.runs(&id), "{keep:?}");
        let lease = std::fs::read_to_string(world.file(&id, "lease.json")).unwrap();
        assert!(lease.contains(&before.0.to_string()), "{lease}");

        std::fs::remove_dir(record).unwrap();
        assert_eq!(world.resume(&id).await.unwrap(), keep);
        assert_eq!(world.machine.second_starts.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test]
async fn a_start_that_could_not_be_taken_back_is_ended_before_the_next_one() {
    let world = World::new().await;
    let id = world.paused(PauseMode::Filesystem).await;
    let record = world.file(&id, "paused.json");
    make_unremovable(&record);
    *world.machine.fail_stops.lock() = Some(Fails::Before);
    assert!(world.resume(&id).await.is_err());
    assert!(world.runs(&id), "that is what could not be taken back");
    assert!(world.resume(&id).await.is_err(), "it still cannot");
    assert_eq!(world.machine.second_starts.load(Ordering::SeqCst), 0);

    *world.machine.fail_stops.lock() = None;
    std::fs::remove_dir(record).unwrap();
    assert_eq!(world.resume(&id).await.unwrap(), PauseMode::Filesystem);
    assert_eq!(world.machine.second_starts.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn what_could_not_be_taken_back_is_tried_again_by_itself() {
    let world = World::new().await;
    let id = world.paused(PauseMode::Filesystem).await;
    make_unremovable(&world.file(&id, "paused.json"));
    *world.machine.fail_stops.lock() = Some(Fails::Before);
    assert!(world.resume(&id).await.is_err());
    assert!(world.runs(&id));
    *world.machine.fail_stops.lock() = None;
    tokio::time::timeout(Duration::from_secs(20), async {
        while world.runs(&id) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .unwrap();
    assert_eq!(world.state(&id), SandboxState::Paused);
}

#[tokio::test]
async fn a_kill_during_a_resume_wins_and_is_the_only_end() {
    let world = World::new().await;
    let mut events = world.node.events();
    let id = world.paused(PauseMode::Memory).await;
    let gate = Arc::new(Notify::new());
    *world.machine.rest_gate.lock() = Some(Arc::clone(&gate));
    let resuming = tokio::spawn({
        let (node, id) = (Arc::clone(&world.node), id.clone());
        let later = UnixMillis::now().plus(LONG);
        async move { node.resume(&id, later, PauseMode::Memory).await }
    });
    while !world.runs(&id) {
        tokio::task::yield_now().await;
    }
    let killing = world.begin_to_kill(&id).await;
    gate.notify_one();
    assert!(matches!(
        resuming.await.unwrap(),
        Err(Error::SandboxNotFound(_))
    ));
    killing.await.unwrap().unwrap();
    assert_eq!(ends(&mut events).await, [EndReason::Killed]);
    assert_eq!(world.machine.destroyed.lock().len(), 1);
}

#[tokio::test]
async fn a_kill_during_a_pause_wins_and_is_the_only_end() {
    let world = World::new().await;
    let mut events = world.node.events();
    let status = world.node.create(spec(LONG)).await.unwrap();
    let id = status.spec.id.clone();
    let gate = Arc::new(Notify::new());
    *world.machine.rest_gate.lock() = Some(Arc::clone(&gate));
    let pausing = tokio::spawn({
        let (node, id) = (Arc::clone(&world.node), id.clone());
        async move { node.pause(&id, PauseMode::Memory).await }
    });
    while world.runs(&id) {
        tokio::task::yield_now().await;
    }
    let killing = world.begin_to_kill(&id).await;
    gate.notify_one();
    assert!(matches!(
        pausing.await.unwrap(),
        Err(Error::SandboxNotFound(_))
    ));
    killing.await.unwrap().unwrap();
    assert_eq!(ends(&mut events).await, [EndReason::Killed]);
    assert_eq!(world.machine.destroyed.lock().len(), 1);
}

#[tokio::test]
async fn one_whose_processes_died_while_it_stood_still_comes_back_from_its_files() {
    let world = World::new().await;
    let mut events = world.node.events();
    let id = world.paused(PauseMode::Memory).await;
    world.machine.alive.lock()[&id].send_replace(true);
    assert_eq!(world.resume(&id).await.unwrap(), PauseMode::Filesystem);
    assert_eq!(world.state(&id), SandboxState::Running);
    assert!(ends(&mut events).await.is_empty());
}

#[tokio::test]
async fn a_stop_that_ended_the_processes_and_failed_afterwards_is_a_pause() {
    let world = World::new().await;
    let mut events = world.node.events();
    let status = world.node.create(spec(LONG)).await.unwrap();
    let id = status.spec.id.clone();
    *world.machine.fail_stops.lock() = Some(Fails::After);
    world.node.pause(&id, PauseMode::Filesystem).await.unwrap();
    assert!(ends(&mut events).await.is_empty(), "its files are kept");
    assert_eq!(world.state(&id), SandboxState::Paused);
    assert!(world.file(&id, "paused.json").exists());
    *world.machine.fail_stops.lock() = None;
    assert_eq!(world.resume(&id).await.unwrap(), PauseMode::Filesystem);
}

/// Killed is killed: to go on as if it ran would be to tell of a death a moment later.
#[tokio::test]
async fn a_stop_whose_processes_take_their_time_to_die_is_a_pause() {
    let world = World::new().await;
    let mut events = world.node.events();
    let status = world.node.create(spec(LONG)).await.unwrap();
    let id = status.spec.id.clone();
    *world.machine.fail_stops.lock() = Some(Fails::Slowly);
    world.node.pause(&id, PauseMode::Filesystem).await.unwrap();
    assert_eq!(world.state(&id), SandboxState::Paused);
    assert!(world.file(&id, "paused.json").exists());
    assert!(world.resume(&id).await.is_err(), "they are still there");
    assert_eq!(world.machine.second_starts.load(Ordering::SeqCst), 0);

    *world.machine.fail_stops.lock() = None;
    assert_eq!(world.resume(&id).await.unwrap(), PauseMode::Filesystem);
    assert_eq!(world.machine.second_starts.load(Ordering::SeqCst), 0);
    assert!(ends(&mut events).await.is_empty());
}

/// Without descriptors a file can be removed, but not be known to be gone for good.
#[tokio::test]
async fn the_record_of_a_rest_that_was_removed_too_early_comes_back() {
    let world = World::new().await;
    let id = world.paused(PauseMode::Memory).await;
    let gate = Arc::new(Notify::new());
    *world.machine.rest_gate.lock() = Some(Arc::clone(&gate));
    let (node, target) = (Arc::clone(&world.node), id.clone());
    let resuming = tokio::spawn(async move {
        let later = UnixMillis::now().plus(LONG);
        node.resume(&target, later, PauseMode::Memory).await
    });
    while !world.runs(&id) {
        tokio::task::yield_now().await;
    }
    *world.machine.rest_gate.lock() = None;
    let none_left = NoDescriptors::from_now_on();
    gate.notify_one();
    assert!(resuming.await.unwrap().is_err());
    drop(none_left);
    assert_eq!(world.state(&id), SandboxState::Paused);
    assert!(!world.runs(&id));
    tokio::time::timeout(Duration::from_secs(20), async {
        while !world.file(&id, "paused.json").exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .expect("the next start would let it run");
}

/// Of this process, in which only one test runs.
struct NoDescriptors(Rlimit);

impl NoDescriptors {
    fn from_now_on() -> Self {
        let before = getrlimit(Resource::Nofile);
        let none = Rlimit {
            current: Some(0),
            ..before
        };
        setrlimit(Resource::Nofile, none).unwrap();
        Self(before)
    }
}

impl Drop for NoDescriptors {
    fn drop(&mut self) {
        setrlimit(Resource::Nofile, self.0).unwrap();
    }
}

/// One that a restart of the machine paused has no record of that, until somebody wakes it.
#[tokio::test]
async fn a_start_after_a_restart_of_the_machine_that_is_cut_short_leaves_a_rest() {
    let world = World::new().await;
    let request = spec(LONG);
    world.node.create(request.clone()).await.unwrap();
    let World {
        folder,
        machine,
        node,
    } = world;
    drop(node);
    machine.alive.lock().clear();
    *machine.rebooted.lock() = true;
    let node = machine::open(config(folder.path()), &machine).await;
    assert_eq!(
        node.paused(&request.id).unwrap().kept,
        PauseMode::Filesystem
    );
    let record = folder.path().join(request.id.as_str()).join("paused.json");
    assert!(!record.exists());
    let gate = Arc::new(Notify::new());
    *machine.gate.lock() = Some(gate);
    let resuming = tokio::spawn({
        let (node, id) = (Arc::clone(&node), request.id.clone());
        async move {
            let later = UnixMillis::now().plus(LONG);
            node.resume(&id, later, PauseMode::Memory).await
        }
    });
    tokio::time::timeout(Duration::from_secs(20), async {
        while !record.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .expect("a start that is cut short would look like a death");
    resuming.abort();
}

#[tokio::test]
async fn a_pause_that_failed_is_forgotten_on_disk_as_soon_as_that_can_be() {
    let world = World::new().await;
    let status = world.node.create(spec(LONG)).await.unwrap();
    let id = status.spec.id.clone();
    *world.machine.fail_pauses.lock() = true;
    assert!(world.node.pause(&id, PauseMode::Memory).await.is_err());
    assert_eq!(world.state(&id), SandboxState::Running);
    assert!(!world.file(&id, "paused.json").exists());
}

#[tokio::test]
async fn who_asks_for_an_end_that_is_under_way_waits_for_it() {
    let world = World::new().await;
    let gate = Arc::new(Notify::new());
    *world.machine.gate.lock() = Some(Arc::clone(&gate));
    *world.machine.fail_creates.lock() = true;
    let request = spec(LONG);
    let id = request.id.clone();
    let creating = tokio::spawn({
        let node = Arc::clone(&world.node);
        async move { node.create(request).await.map(drop) }
    });
    while !world.file(&id, "spec.json").exists() {
        tokio::task::yield_now().await;
    }
    let killing = world.begin_to_kill(&id).await;
    gate.notify_one();
    creating.await.unwrap().unwrap_err();
    assert!(
        !world.folder.path().join(id.as_str()).exists(),
        "on error nothing is left of it"
    );
    killing.await.unwrap().unwrap();
}

#[tokio::test]
async fn deadlines_that_are_set_at_once_are_the_same_in_memory_and_on_disk() {
    let world = World::new().await;
    let status = world.node.create(spec(LONG)).await.unwrap();
    let (id, now) = (status.spec.id.clone(), UnixMillis::now());
    for _ in 0..50 {
        let setting = (1..=8).map(|hours| {
            let (node, id) = (Arc::clone(&world.node), id.clone());
            tokio::spawn(async move { node.set_deadline(&id, now.plus(LONG * hours)).await })
        });
        for set in setting.collect::<Vec<_>>() {
            set.await.unwrap().unwrap();
        }
        let told = world.node.get(&id).unwrap().spec.deadline;
        let lease = std::fs::read_to_string(world.file(&id, "lease.json")).unwrap();
        assert!(lease.contains(&told.0.to_string()), "{told:?} {lease}");
    }
}
