//! Who holds the kernel's memory is ended, with a runtime that keeps its sandboxes in memory and a
//! kernel that uses what the test says.

#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

#[path = "support/machine.rs"]
mod machine;

use std::{sync::Arc, time::Duration};

use machine::{FakeMemory, LONG, Machine, config, ends_dir, snapshots_dir, spec};
use soulbox_node::{KernelMemory, LocalNode};
use soulbox_runtime::{Node, NodeEvent, SocketMemory};
use soulbox_types::{EndReason, PauseMode, SandboxId, SandboxState};
use tokio::{
    sync::{Notify, broadcast::Receiver},
    time::timeout,
};

const SOON: Duration = Duration::from_secs(20);
/// Some rounds of the guard.
const A_WHILE: Duration = Duration::from_millis(700);

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
    async fn new() -> Self {
        let (folder, machine) = (tempfile::tempdir().unwrap(), Arc::<Machine>::default());
        let memory = FakeMemory::new(&machine, 0, 1 << 20);
        let mut config = config(folder.path());
        config.admission.gauge = Arc::clone(&memory) as _;
        let node = machine::open(config, &machine).await;
        Self {
            folder,
            machine,
            memory,
            node,
        }
    }

    /// Makes a sandbox whose sockets hold so much.
    async fn holding(&self, mib: Option<u64>) -> SandboxId {
        let id = self.node.create(spec(LONG)).await.unwrap().spec.id.clone();
        let held = mib.map(|mib| SocketMemory {
            bytes: mib << 20,
            sockets: 10,
            complete: true,
        });
        self.machine.sockets.lock().insert(id.clone(), held);
        id
    }

    /// A machine of 32 GiB: it is asked whose it is from 1 GiB on.
    fn unexplained(&self, mib: u64, sockets_short: bool) {
        *self.memory.kernel.lock() = Some(KernelMemory {
            total: 32 << 30,
            unexplained: mib << 20,
            sockets_short,
        });
    }

    fn is_running(&self, id: &SandboxId) -> bool {
        let status = self.node.get(id);
        status.is_some_and(|status| status.state == SandboxState::Running)
    }
}

async fn next_end(events: &mut Receiver<NodeEvent>) -> (SandboxId, EndReason, String) {
    loop {
        let event = timeout(SOON, events.recv()).await.unwrap().unwrap();
        if let NodeEvent::Ended { id, reason, detail } = event {
            return (id, reason, detail);
        }
    }
}

#[tokio::test]
async fn whoever_holds_the_kernels_memory_is_ended_and_told_why() {
    let world = World::new().await;
    let mut events = world.node.events();
    let neighbour = world.holding(Some(30)).await;
    let opaque = world.holding(None).await;
    let hoarder = world.holding(Some(2000)).await;
    world.unexplained(2100, false);
    let (id, reason, detail) = next_end(&mut events).await;
    assert_eq!((&id, reason), (&hoarder, EndReason::Evicted));
    assert!(detail.contains("held 2000 MiB"), "{detail}");
    let ends = world.node.unrecorded_ends().await;
    assert_eq!((ends.len(), ends[0].detail.as_str()), (1, detail.as_str()));
    // It takes a moment until the memory is back, and nobody else is to blame.
    assert!(timeout(A_WHILE, next_end(&mut events)).await.is_err());
    assert!(world.is_running(&neighbour) && world.is_running(&opaque));
    assert_eq!(world.node.evictions(), 1);
}

/// Its memory is not back as long as the kernel takes for its end.
#[tokio::test]
async fn a_neighbour_of_one_that_takes_long_to_end_stays() {
    let world = World::new().await;
    let mut events = world.node.events();
    let neighbour = world.holding(Some(100)).await;
    // So that it is known from where on it grows.
    world.unexplained(100, false);
    assert!(timeout(A_WHILE, next_end(&mut events)).await.is_err());
    let gate = Arc::new(Notify::new());
    *world.machine.end_gate.lock() = Some(Arc::clone(&gate));
    let hoarder = world.holding(Some(2100)).await;
    world.unexplained(2300, false);
    assert!(timeout(A_WHILE, next_end(&mut events)).await.is_err());
    assert!(world.is_running(&neighbour) && !world.is_running(&hoarder));
    assert_eq!(world.node.evictions(), 1, "nobody twice");
    world.unexplained(200, false);
    *world.machine.end_gate.lock() = None;
    gate.notify_waiters();
    assert_eq!(next_end(&mut events).await.0, hoarder);
    assert!(timeout(A_WHILE, next_end(&mut events)).await.is_err());
    assert!(world.is_running(&neighbour));
}

#[tokio::test]
async fn one_that_has_too_many_sockets_to_be_counted_is_ended() {
    let world = World::new().await;
    let mut events = world.node.events();
    let [many, slow] = [world.holding(None).await, world.holding(None).await];
    for (id, sockets) in [(&many, 50_001), (&slow, 50_000)] {
        let held = SocketMemory {
            bytes: 3 << 20,
            sockets,
            complete: false,
        };
        world.machine.sockets.lock().insert(id.clone(), Some(held));
    }
    world.unexplained(2100, false);
    let (id, reason, detail) = next_end(&mut events).await;
    assert_eq!((id, reason), (many, EndReason::Evicted));
    assert!(detail.contains("50001 sockets"), "{detail}");
    // The other is asked again until it is known what it holds.
    let held = SocketMemory {
        bytes: 2000 << 20,
        sockets: 50_000,
        complete: true,
    };
    world
        .machine
        .sockets
        .lock()
        .insert(slow.clone(), Some(held));
    assert_eq!(next_end(&mut events).await.0, slow);
}

#[tokio::test]
async fn one_that_is_never_told_of_does_not_hide_the_others() {
    let world = World::new().await;
    let mut events = world.node.events();
    let slow = world.holding(Some(0)).await;
    world.machine.slow_sockets.lock().insert(slow.clone());
    let hoarder = world.holding(Some(500)).await;
    world.unexplained(100, true);
    assert_eq!(next_end(&mut events).await.0, hoarder);
    assert!(world.is_running(&slow));
}

#[tokio::test]
async fn one_that_is_paused_is_not_hidden() {
    let world = World::new().await;
    let mut events = world.node.events();
    let hoarder = world.holding(Some(500)).await;
    world.node.pause(&hoarder, PauseMode::Memory).await.unwrap();
    world.unexplained(100, true);
    let (id, reason, _) = next_end(&mut events).await;
    assert_eq!((id, reason), (hoarder, EndReason::Evicted));
}

#[tokio::test]
async fn nobody_is_ended_while_nothing_lacks() {
    let world = World::new().await;
    let mut events = world.node.events();
    let busy = world.holding(Some(500)).await;
    world.unexplained(900, false);
    assert!(timeout(A_WHILE, next_end(&mut events)).await.is_err());
    assert!(world.is_running(&busy));
    assert_eq!(world.node.evictions(), 0);
}
