//! A kernel that does not end what was killed: nothing more is made there, and who asks is told why.

#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::{sync::Arc, time::Duration};

use soulbox_node::LocalNode;
use soulbox_runtime::{Error, Node, Result};
use soulbox_types::{EndReason, PauseMode, SandboxId, UnixMillis};
use tokio::{sync::Notify, task::JoinSet, time::Instant};

#[path = "support/machine.rs"]
mod machine;

use machine::{LONG, Machine, config, spec};

/// Waits for nothing but files and ends: pauses pass when there is nothing else to do.
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

    async fn create(&self) -> Result<SandboxId> {
        let status = self.node.create(spec(LONG)).await?;
        Ok(status.spec.id.clone())
    }

    async fn resume(&self, id: &SandboxId) -> Result<PauseMode> {
        let later = UnixMillis::now().plus(LONG);
        self.node.resume(id, later, PauseMode::Memory).await
    }

    /// From now on ends take until the result is opened.
    fn get_stuck(&self) -> Arc<Notify> {
        let gate = Arc::new(Notify::new());
        *self.machine.end_gate.lock() = Some(Arc::clone(&gate));
        gate
    }

    fn recover(&self, gate: &Notify) {
        *self.machine.end_gate.lock() = None;
        gate.notify_waiters();
    }

    /// All at once, until those who asked are told that it takes too long.
    async fn kill(&self, ids: &[SandboxId]) {
        let mut kills = JoinSet::new();
        for id in ids {
            let (node, id) = (Arc::clone(&self.node), id.clone());
            kills.spawn(async move { node.destroy(&id, EndReason::Killed).await });
        }
        while let Some(told) = kills.join_next().await {
            let told = told.unwrap();
            assert!(matches!(told, Err(Error::Timeout { .. })), "{told:?}");
        }
        tokio::time::advance(Duration::from_secs(1)).await;
    }

    fn folders(&self) -> usize {
        std::fs::read_dir(self.folder.path()).unwrap().count()
    }

    async fn are_left(&self, count: usize) {
        let waited = async {
            while self.folders() > count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(5), waited)
            .await
            .unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn with_four_ends_stuck_nothing_is_made_or_woken_until_they_are_over() {
    let world = World::new().await;
    let mut stuck = Vec::new();
    for _ in 0..4 {
        stuck.push(world.create().await.unwrap());
    }
    let running = world.create().await.unwrap();
    let in_memory = world.create().await.unwrap();
    let on_disk = world.create().await.unwrap();
    let pause = |id, keep| world.node.pause(id, keep);
    pause(&in_memory, PauseMode::Memory).await.unwrap();
    pause(&on_disk, PauseMode::Filesystem).await.unwrap();

    let gate = world.get_stuck();
    world.kill(&stuck[..3]).await;
    let fourth = world.create().await;
    assert!(fourth.is_ok(), "three may have reasons of their own");

    world.kill(&stuck[3..]).await;
    let refused = world.create().await.unwrap_err();
    let Error::KernelStuck { ends: 4, longest } = refused else {
        panic!("{refused}");
    };
    assert!(longest >= Duration::from_mins(1), "{longest:?}");
    assert!(refused.to_string().contains("does not end processes"));
    for paused in [&in_memory, &on_disk] {
        let refused = world.resume(paused).await.unwrap_err();
        assert!(matches!(refused, Error::KernelStuck { .. }), "{refused}");
        assert!(world.node.get(paused).is_some(), "it stays as it is");
    }
    // What runs goes on, and can be asked to wake: it does already.
    world.node.stats(&running).await.unwrap();
    world.resume(&running).await.unwrap();
    let before = world.folders();

    world.recover(&gate);
    world.are_left(before - 4).await;
    world.create().await.unwrap();
    world.resume(&in_memory).await.unwrap();
    world.resume(&on_disk).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn ends_that_take_their_time_one_after_the_other_are_no_reason() {
    let world = World::new().await;
    for _ in 0..8 {
        let id = world.create().await.unwrap();
        let gate = world.get_stuck();
        world.kill(std::slice::from_ref(&id)).await;
        world.recover(&gate);
        world.are_left(0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_create_that_fails_says_why_in_time_also_where_its_remains_cannot_be_ended() {
    let world = World::new().await;
    let gate = world.get_stuck();
    *world.machine.fail_creates.lock() = true;
    let asked = Instant::now();
    let failed = world.create().await.unwrap_err();
    let Error::Start { step, .. } = &failed else {
        panic!("{failed}");
    };
    assert_eq!(step, "test");
    let took = asked.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_eq!(world.folders(), 1, "its end goes on");

    // Each leaves one that cannot be ended; so there are not many of them.
    let mut refused = 0;
    for _ in 0..20 {
        if let Err(Error::KernelStuck { .. }) = world.create().await {
            refused += 1;
        }
    }
    assert!(refused >= 10, "{refused}");
    let left = world.folders();
    assert!(left <= 12, "{left}");

    world.recover(&gate);
    world.are_left(0).await;
    *world.machine.fail_creates.lock() = false;
    world.create().await.unwrap();
}
