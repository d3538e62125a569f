//! The warm pool's promises, with a runtime that keeps its sandboxes in memory.

#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

#[path = "support/machine.rs"]
mod machine;
#[path = "support/pool.rs"]
mod support;

use std::{collections::HashSet, sync::Arc, time::Duration};

use machine::{FakeMemory, LONG, spec};
use soulbox_node::NodeConfig;
use soulbox_runtime::{Error, Node, PoolKey};
use soulbox_template::Template;
use soulbox_types::{
    EndReason, Limits, NetworkPolicy, Purpose, SandboxId, SandboxSpec, SandboxState, StartCommand,
    UnixMillis,
};
use support::{World, folders, meminfo};
use tokio::sync::Notify;

#[test]
fn twenty_at_once_against_five_all_get_one_of_their_own() {
    let world = World::new();
    let server = world.server(5);
    server.run(async {
        world.fill(&server, 5).await;
        let waiting = world.alive();
        assert_eq!(waiting.len(), 5);
        assert!(server.node.list().is_empty());

        let creates = (0..20).map(|_| world.create(&server));
        let specs = futures_util::future::join_all(creates).await;
        let ids: HashSet<_> = specs.into_iter().map(|spec| spec.unwrap().id).collect();
        assert_eq!(ids.len(), 20);
        assert!(waiting.is_subset(&ids), "those that waited served");
        assert_eq!(server.node.list().len(), 20);
        assert!(server.node.pool_stats().hits >= 5);
        server.until(|node| node.pool_stats().ready == 5).await;
        assert!(world.alive().len() == 25 && server.node.list().len() == 20);
    });
}

#[test]
fn whoever_takes_one_gets_it_as_asked_for() {
    let world = World::new();
    let server = world.server(2);
    server.run(async {
        world.fill(&server, 2).await;
        let mut events = server.node.events();
        let mut spec = world.spec();
        let reserved = world.reserve_warm(&server).unwrap();
        spec.id = reserved.id().clone();
        spec.limits.memory_mib = 2048;
        spec.network = NetworkPolicy {
            allow_internet: Some(false),
            ..NetworkPolicy::default()
        };
        spec.deadline = UnixMillis::now().plus(Duration::from_millis(300));
        let status = server.node.create(spec.clone()).await.unwrap();
        assert_eq!(status.state, SandboxState::Running);
        assert_eq!(status.spec.metadata, spec.metadata);
        assert_eq!(status.spec.purpose, Purpose::User);

        let machine = &world.machine;
        assert_eq!(machine.networks.lock()[&spec.id], spec.network);
        assert_eq!(machine.limits.lock()[&spec.id], spec.limits);
        let told = machine.inits.lock()[&spec.id].clone();
        assert_eq!(told["envVars"]["KEY"], "value");
        assert_eq!(told["envVars"]["FROM"], "template");
        let token = spec.access_token.as_ref().unwrap().expose().to_owned();
        assert_eq!(told["accessToken"], token);
        assert_eq!(told["memoryBytes"], spec.limits.memory_bytes());
        assert_eq!(
            server.node.create(spec.clone()).await.unwrap().spec.id,
            spec.id
        );
        assert_eq!(server.node.logs(&spec.id).await.unwrap().len(), 1);

        let event = events.recv().await.unwrap();
        let soulbox_runtime::NodeEvent::Ended { id, reason, .. } = event else {
            panic!("{event:?}")
        };
        assert_eq!((id, reason), (spec.id, EndReason::Expired));
        assert!(events.is_empty(), "nothing is told of those that wait");
    });
}

#[test]
fn one_that_cannot_be_handed_over_is_made_anew_under_the_same_id() {
    let world = World::new();
    let server = world.server(3);
    server.run(async {
        world.fill(&server, 3).await;
        let mut events = server.node.events();
        *world.machine.fail_inits.lock() = true;
        let spec = world.create(&server).await.unwrap();
        assert!(world.machine.destroyed.lock().contains(&spec.id));
        assert!(world.alive().contains(&spec.id));
        *world.machine.fail_inits.lock() = false;

        // What cannot be changed in a running one.
        let mut other = world.spec();
        let reserved = world.reserve_warm(&server).unwrap();
        other.id = reserved.id().clone();
        other.limits.disk_mib += 1;
        server.node.create(other.clone()).await.unwrap();
        assert!(world.machine.destroyed.lock().contains(&other.id));
        assert_eq!(server.node.list().len(), 2);
        assert!(events.try_recv().is_err());
    });
}

#[test]
fn a_reservation_that_nobody_uses_ends_the_sandbox() {
    let world = World::new();
    let server = world.server_with(2, "current", |mut config| {
        config.pool.reserved_for = Duration::from_millis(100);
        config
    });
    server.run(async {
        world.fill(&server, 2).await;
        let reserved = world.reserve_warm(&server).unwrap();
        let id = reserved.id().clone();
        server
            .until(|_| world.machine.destroyed.lock().contains(&id))
            .await;
        // Who comes too late gets a new one.
        let spec = SandboxSpec {
            id: id.clone(),
            ..world.spec()
        };
        assert_eq!(server.node.create(spec).await.unwrap().spec.id, id);
        drop(reserved);
        server.until(|node| node.pool_stats().ready == 2).await;
        assert!(world.alive().contains(&id) && server.node.get(&id).is_some());
    });
}

#[test]
fn an_older_build_is_never_handed_out() {
    let world = World::new();
    let server = world.server(3);
    server.run(async {
        world.fill(&server, 3).await;
        let old = world.alive();
        server.templates.set_own(world.template("newer"));
        assert!(world.reserve_warm(&server).is_none());
        server.until(|_| world.alive().is_disjoint(&old)).await;
        server.until(|node| node.pool_stats().ready == 3).await;

        let newer = world.alive();
        server.node.retire("newer");
        assert_eq!(server.node.pool_stats().ready, 0);
        server.until(|_| world.alive().is_disjoint(&newer)).await;
    });
}

#[test]
fn one_that_dies_is_replaced_and_never_handed_out() {
    let world = World::new();
    let server = world.server(2);
    server.run(async {
        world.fill(&server, 2).await;
        let all = world.alive();
        for dead in world.machine.alive.lock().values() {
            dead.send_replace(true);
        }
        server.until(|_| world.alive().is_disjoint(&all)).await;
        if let Some(reserved) = world.reserve_warm(&server) {
            assert!(!all.contains(reserved.id()));
        }
        server.until(|node| node.pool_stats().ready == 2).await;
    });
}

#[test]
fn little_memory_empties_the_pool_and_nothing_is_made() {
    let world = World::new();
    let server = world.server(3);
    server.run(async {
        world.fill(&server, 3).await;
        std::fs::write(world.meminfo(), meminfo(64 << 10)).unwrap();
        server.until(|_| world.alive().is_empty()).await;
        world.create(&server).await.unwrap();
        assert_eq!(server.node.pool_stats().making, 0);
        std::fs::write(world.meminfo(), meminfo(8 << 20)).unwrap();
        server.until(|node| node.pool_stats().ready == 3).await;
    });
}

#[test]
fn it_takes_no_more_memory_than_it_may() {
    let world = World::new();
    *world.machine.memory_bytes.lock() = 200 << 20;
    let server = world.server(8);
    server.run(async {
        world.ask_for(&server, 8);
        // 1 GiB in all.
        server.until(|node| node.pool_stats().ready == 5).await;
        world.create(&server).await.unwrap();
        server.until(|node| node.pool_stats().ready == 5).await;
        assert_eq!(world.alive().len(), 6);
    });
}

#[test]
fn a_full_machine_serves_users_first() {
    let world = World::new();
    let server = world.server_with(4, "current", |config| NodeConfig {
        max_sandboxes: 4,
        ..config
    });
    server.run(async {
        // The last place is not the pool's.
        world.ask_for(&server, 4);
        server.until(|node| node.pool_stats().ready == 3).await;
        for _ in 0..4 {
            server.node.create(world.spec()).await.unwrap();
        }
        assert_eq!(server.node.pool_stats().ready, 0);
        let refused = server.node.create(world.spec()).await;
        assert!(matches!(refused, Err(Error::NoCapacity { .. })));
    });
}

#[test]
fn a_pool_that_one_kind_has_filled_makes_room_for_another() {
    let world = World::new();
    let server = world.server(3);
    let other = PoolKey {
        disk_mib: 77,
        ..world.key()
    };
    server.run(async {
        world.fill(&server, 3).await;
        for _ in 0..2 {
            assert!(server.reserve_warm(&other).is_none());
        }
        let found = || server.reserve_warm(&other).is_some();
        server
            .until(|node| node.pool_stats().making == 0 && found())
            .await;
        assert!(world.reserve_warm(&server).is_some());
    });
}

#[test]
fn a_server_that_stops_leaves_nobody_waiting() {
    let world = World::new();
    let server = world.server(3);
    server.run(async {
        world.fill(&server, 3).await;
        let spec = world.create(&server).await.unwrap();
        assert_eq!(world.machine.limits.lock()[&spec.id], spec.limits);
        server.node.close_pool().await;
        assert_eq!(world.alive(), HashSet::from([spec.id]));
        assert!(world.reserve_warm(&server).is_none());
        assert_eq!(folders(&world.sandboxes()), 1);
    });
}

#[test]
fn a_server_that_stops_waits_for_ends_that_others_have_begun() {
    let world = World::new();
    let server = world.server(1);
    server.run(async {
        world.fill(&server, 1).await;
        let [waiting] = Vec::from_iter(world.alive()).try_into().unwrap();
        *world.machine.fail_destroys.lock() = true;
        let node = Arc::clone(&server.node);
        let ending = waiting.clone();
        tokio::spawn(async move { node.destroy(&ending, EndReason::Killed).await });
        let marker = world.sandboxes().join(waiting.as_str()).join("ended.json");
        server.until(|_| marker.exists()).await;
        let node = Arc::clone(&server.node);
        let mut closing = tokio::spawn(async move { node.close_pool().await });
        let early = tokio::time::timeout(Duration::from_millis(300), &mut closing);
        assert!(early.await.is_err(), "it is still there");
        *world.machine.fail_destroys.lock() = false;
        closing.await.unwrap();
        assert!(world.alive().is_empty());
        assert_eq!(folders(&world.sandboxes()), 0);
    });
}

#[test]
fn after_a_kill_those_that_waited_end_and_demand_brings_new_ones() {
    let world = World::new();
    let server = world.server(3);
    server.run(world.fill(&server, 3));
    let waiting = world.alive();
    drop(server);
    let server = world.server(3);
    assert_eq!(server.node.pool_stats().ready, 0);
    assert!(world.alive().is_empty() && folders(&world.sandboxes()) == 0);
    server.run(async {
        world.fill(&server, 3).await;
        assert!(world.alive().is_disjoint(&waiting));
    });
}

#[test]
fn after_a_kill_without_a_pool_nobody_waits() {
    let world = World::new();
    let server = world.server(2);
    server.run(world.fill(&server, 2));
    drop(server);
    drop(world.server(0));
    assert!(world.alive().is_empty() && folders(&world.sandboxes()) == 0);
}

#[test]
fn a_kill_while_they_are_made_leaves_nothing() {
    let world = World::new();
    let server = world.server(2);
    *world.machine.gate.lock() = Some(Arc::new(Notify::new()));
    server.run(async {
        world.ask_for(&server, 2);
        server.until(|_| folders(&world.sandboxes()) == 2).await;
    });
    drop(server);
    *world.machine.gate.lock() = None;
    let server = world.server(2);
    assert_eq!(server.node.pool_stats().ready, 0);
    assert!(world.alive().is_empty() && folders(&world.sandboxes()) == 0);
}

#[test]
fn an_id_that_was_reserved_before_a_kill_is_never_reserved_again() {
    let world = World::new();
    let server = world.server(2);
    // By now the control plane may have a row with it.
    let reserved = server.run(async {
        world.fill(&server, 2).await;
        world.reserve_warm(&server).unwrap()
    });
    drop(server);
    let server = world.server(2);
    assert!(server.node.list().is_empty());
    assert!(!world.alive().contains(reserved.id()));
    server.run(async {
        world.fill(&server, 2).await;
        for _ in 0..2 {
            let other = world.reserve_warm(&server).unwrap();
            assert_ne!(other.id(), reserved.id());
        }
        assert!(world.machine.inits.lock().is_empty());
    });
}

#[test]
fn a_kill_in_the_middle_of_a_hand_over_ends_it() {
    let world = World::new();
    let server = world.server(2);
    let id = server.run(async {
        world.fill(&server, 2).await;
        *world.machine.mute.lock() = true;
        let mut spec = world.spec();
        let reserved = world.reserve_warm(&server).unwrap();
        spec.id = reserved.id().clone();
        let (node, request) = (Arc::clone(&server.node), spec.clone());
        tokio::spawn(async move { node.create(request).await });
        let file = world.sandboxes().join(spec.id.as_str()).join("spec.json");
        server
            .until(|_| std::fs::read_to_string(&file).is_ok_and(|text| text.contains("测试")))
            .await;
        spec.id
    });
    drop(server);
    *world.machine.mute.lock() = false;
    let server = world.server(2);
    assert!(server.node.list().is_empty());
    assert!(!world.alive().contains(&id));
    assert!(!world.sandboxes().join(id.as_str()).exists());
}

#[test]
fn a_kill_after_a_hand_over_leaves_the_user_their_sandbox() {
    let world = World::new();
    let server = world.server(2);
    let spec = server.run(async {
        world.fill(&server, 2).await;
        world.create(&server).await.unwrap()
    });
    drop(server);
    let server = world.server(2);
    let status = server.node.get(&spec.id).unwrap();
    assert_eq!(status.spec.env, spec.env);
    assert_eq!(status.spec.access_token, spec.access_token);
    assert_eq!(server.node.list().len(), 1);
}

#[test]
fn those_that_wait_are_given_up_when_memory_lacks() {
    let world = World::new();
    let memory = Arc::new(FakeMemory {
        each_mib: 30,
        ..Arc::into_inner(FakeMemory::new(&world.machine, 0, 130)).unwrap()
    });
    let gauge = Arc::clone(&memory);
    let server = world.server_with(3, "current", |mut config| {
        config.admission.gauge = gauge;
        config.admission.wait = Duration::from_secs(10);
        config
    });
    server.run(async {
        world.fill(&server, 3).await;
        let waiting = world.alive();
        // Another kind, so none of those that wait serves: room for one more, then for one in
        // the place of each of them.
        for made in 1..=4 {
            server.node.create(spec(LONG)).await.unwrap();
            assert_eq!(server.node.list().len(), made);
        }
        assert!(world.alive().is_disjoint(&waiting));
        assert_eq!(server.node.pool_stats().ready, 0);
        let refused = server.node.admission_stats().refused;
        assert!(refused.iter().all(|(_, count)| *count == 0), "{refused:?}");
    });
}

#[test]
fn whoever_gets_one_that_waits_does_not_wait_for_those_that_are_started() {
    let world = World::new();
    let server = world.server_with(2, "current", |mut config| {
        config.admission.starts = 1;
        config
    });
    server.run(async {
        world.fill(&server, 2).await;
        let gate = Arc::new(Notify::new());
        *world.machine.gate.lock() = Some(Arc::clone(&gate));
        let cold: Vec<_> = (0..2)
            .map(|_| {
                let (node, request) = (Arc::clone(&server.node), spec(LONG));
                tokio::spawn(async move { node.create(request).await })
            })
            .collect();
        server
            .until(|node| node.admission_stats().waiting == 1)
            .await;
        world.create(&server).await.unwrap();
        let stats = server.node.admission_stats();
        assert_eq!((stats.waiting, stats.starting), (1, 1));
        *world.machine.gate.lock() = None;
        gate.notify_waiters();
        for create in cold {
            create.await.unwrap().unwrap();
        }
    });
}

#[test]
fn one_that_waits_is_not_given_to_somebody_who_may_not_be_promised_so_much() {
    let world = World::new();
    let limits = Limits::default();
    let server = world.server_with(2, "current", |mut config| {
        config.admission.overcommit.memory_bytes = Some(limits.memory_bytes() * 3);
        config
    });
    server.run(async {
        world.fill(&server, 2).await;
        let mut large = world.spec();
        let reserved = world.reserve_warm(&server).unwrap();
        large.id = reserved.id().clone();
        large.limits.memory_mib = limits.memory_mib * 3;
        // Both that waited go to make room for it.
        let status = server.node.create(large.clone()).await.unwrap();
        assert_eq!(status.spec.limits, large.limits);
        assert!(world.machine.destroyed.lock().contains(&large.id));
        server.until(|_| world.alive().len() == 1).await;
        let refused = server.node.create(world.spec()).await;
        let Err(Error::NoCapacity { what, .. }) = refused else {
            panic!("{refused:?}")
        };
        assert!(what.contains("1536 of 1536 MiB are promised"), "{what}");
    });
}

/// Its own state folder says whose it is.
fn spec_on_disk(world: &World, id: &SandboxId) -> SandboxSpec {
    let file = world.sandboxes().join(id.as_str()).join("spec.json");
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

fn one_at_a_time(mut config: NodeConfig) -> NodeConfig {
    config.pool.at_once = 1;
    config
}

#[test]
fn whoever_finds_none_ready_takes_over_one_that_is_being_made() {
    let world = World::new();
    let server = world.server_with(2, "current", one_at_a_time);
    server.run(async {
        let (half_made, gate) = world.half_made(&server).await;
        let mut spec = world.spec();
        let reserved = world.reserve_warm(&server).unwrap();
        spec.id = reserved.id().clone();
        assert_eq!(spec.id, half_made);
        spec.limits.memory_mib = 2048;
        let create = || {
            let (node, request) = (Arc::clone(&server.node), spec.clone());
            tokio::spawn(async move { node.create(request).await })
        };
        let first = create();
        // Before it is made it has the cpu of a user's, and is told as one.
        let machine = &world.machine;
        let is_lifted = || machine.limits.lock().get(&half_made) == Some(&spec.limits);
        server.until(|_| is_lifted()).await;
        let told = server.node.get(&half_made).unwrap();
        assert_eq!(told.state, SandboxState::Creating);
        assert_eq!(told.spec.metadata, spec.metadata);
        // For a server that starts anew it is nobody's.
        assert_eq!(spec_on_disk(&world, &half_made).purpose, Purpose::Warm);
        let second = create();

        gate.open();
        for create in [first, second] {
            let status = create.await.unwrap().unwrap();
            assert_eq!(status.state, SandboxState::Running);
            assert_eq!(status.spec.id, half_made);
        }
        assert_eq!(spec_on_disk(&world, &half_made).purpose, Purpose::User);
        let folder = world.sandboxes().join(half_made.as_str());
        assert!(!folder.join("warm.json").exists());
        let told = machine.inits.lock()[&half_made].clone();
        assert_eq!(told["envVars"]["KEY"], "value");
        assert!(!machine.destroyed.lock().contains(&half_made));
        // The pool is filled beside it.
        server.until(|node| node.pool_stats().ready == 2).await;
        assert_eq!(server.node.list().len(), 1);
    });
}

#[test]
fn one_that_is_being_made_is_reserved_once() {
    let world = World::new();
    let server = world.server_with(2, "current", one_at_a_time);
    server.run(async {
        let (half_made, gate) = world.half_made(&server).await;
        let first = world.reserve_warm(&server).unwrap();
        assert_eq!(*first.id(), half_made);
        assert!(world.reserve_warm(&server).is_none());
        let creates = [
            SandboxSpec {
                id: half_made.clone(),
                ..world.spec()
            },
            world.spec(),
        ]
        .map(|spec| {
            let node = Arc::clone(&server.node);
            tokio::spawn(async move { node.create(spec).await })
        });
        server.until(|node| node.list().len() == 2).await;
        gate.open();
        for create in creates {
            create.await.unwrap().unwrap();
        }
        assert!(server.node.get(&half_made).is_some());
        assert_eq!(server.node.list().len(), 2);
    });
}

#[test]
fn whoever_waits_for_one_that_cannot_be_made_gets_one_of_their_own() {
    let world = World::new();
    let server = world.server_with(2, "current", one_at_a_time);
    server.run(async {
        let mut events = server.node.events();
        let (half_made, gate) = world.half_made(&server).await;
        *world.machine.fail_warm.lock() = true;
        let (node, mut request) = (Arc::clone(&server.node), world.spec());
        let reserved = world.reserve_warm(&server).unwrap();
        request.id = reserved.id().clone();
        let create = tokio::spawn(async move { node.create(request).await });
        server.until(|node| node.get(&half_made).is_some()).await;
        gate.open();
        let status = create.await.unwrap().unwrap();
        assert_eq!(status.spec.id, half_made);
        assert_eq!(spec_on_disk(&world, &half_made).purpose, Purpose::User);
        assert_eq!(world.alive(), HashSet::from([half_made.clone()]));
        assert!(events.try_recv().is_err(), "their sandbox has not ended");
        assert!(server.node.get(&half_made).is_some());
    });
}

#[test]
fn one_that_was_reserved_while_it_was_being_made_ends_when_its_create_does_not_come() {
    for is_recorded in [true, false] {
        let world = World::new();
        let server = world.server_with(2, "current", |mut config| {
            config.pool.reserved_for = Duration::from_millis(100);
            one_at_a_time(config)
        });
        server.run(async {
            let (half_made, gate) = world.half_made(&server).await;
            let mut reserved = world.reserve_warm(&server);
            assert_eq!(*reserved.as_ref().unwrap().id(), half_made);
            if is_recorded {
                reserved = None;
            }
            gate.open();
            let folder = world.sandboxes().join(half_made.as_str());
            server.until(|_| !folder.exists()).await;
            // Its place is filled, and its id is nobody's.
            server.until(|node| node.pool_stats().ready == 2).await;
            assert!(!world.alive().contains(&half_made) && world.alive().len() == 2);
            assert_eq!(folders(&world.sandboxes()), 2);
            assert!(server.node.list().is_empty());
            drop(reserved);
        });
    }
}

#[test]
fn one_that_is_taken_over_can_be_ended_and_ends_once() {
    let world = World::new();
    let server = world.server_with(2, "current", one_at_a_time);
    server.run(async {
        let mut events = server.node.events();
        let (half_made, gate) = world.half_made(&server).await;
        let (node, mut request) = (Arc::clone(&server.node), world.spec());
        let reserved = world.reserve_warm(&server).unwrap();
        request.id = reserved.id().clone();
        let create = tokio::spawn(async move { node.create(request).await });
        server.until(|node| node.get(&half_made).is_some()).await;
        let (node, id) = (Arc::clone(&server.node), half_made.clone());
        let kill = tokio::spawn(async move { node.destroy(&id, EndReason::Killed).await });
        // Nobody waits for what is ended.
        let refused = create.await.unwrap();
        assert!(matches!(refused, Err(Error::SandboxNotFound(id)) if id == half_made));
        gate.open();
        kill.await.unwrap().unwrap();
        let event = events.recv().await.unwrap();
        let soulbox_runtime::NodeEvent::Ended { id, reason, .. } = event else {
            panic!("{event:?}")
        };
        assert_eq!((&id, reason), (&half_made, EndReason::Killed));
        let ends = world.machine.destroyed.lock().clone();
        assert_eq!(ends.iter().filter(|id| **id == half_made).count(), 1);
        assert!(!world.sandboxes().join(half_made.as_str()).exists());
        server.until(|node| node.pool_stats().ready == 2).await;
        assert!(events.try_recv().is_err());
        assert!(!world.alive().contains(&half_made));
    });
}

#[test]
fn a_kill_of_the_server_while_one_is_taken_over_leaves_nothing() {
    let world = World::new();
    let server = world.server_with(2, "current", one_at_a_time);
    let half_made = server.run(async {
        let (half_made, _gate) = world.half_made(&server).await;
        let (node, mut request) = (Arc::clone(&server.node), world.spec());
        let reserved = world.reserve_warm(&server).unwrap();
        request.id = reserved.id().clone();
        tokio::spawn(async move { node.create(request).await });
        server.until(|node| node.get(&half_made).is_some()).await;
        half_made
    });
    drop(server);
    *world.machine.gate.lock() = None;
    let server = world.server(0);
    assert!(server.node.get(&half_made).is_none());
    assert!(world.alive().is_empty() && folders(&world.sandboxes()) == 0);
}

#[test]
fn nothing_is_begun_for_the_pool_while_a_start_command_of_a_user_runs() {
    let world = World::new();
    let server = world.server_with(2, "current", |config| {
        config.templates.set_own(Template {
            start: Some(StartCommand {
                start: "serve".to_owned(),
                ready: "is-up".to_owned(),
            }),
            ..world.template("current")
        });
        config
    });
    server.run(async {
        // envd has started nothing yet: the processes run, and the start command does not end.
        *world.machine.mute.lock() = true;
        let (node, request) = (Arc::clone(&server.node), world.spec());
        let users = request.id.clone();
        let create = tokio::spawn(async move { node.create(request).await });
        server.until(|_| world.alive().len() == 1).await;
        world.ask_for(&server, 2);
        server.until(|node| node.pool_stats().making == 2).await;
        let begun = server.until(|_| folders(&world.sandboxes()) > 1);
        let early = tokio::time::timeout(Duration::from_millis(500), begun);
        assert!(early.await.is_err(), "it was begun beside the user's");
        server
            .node
            .destroy(&users, EndReason::Killed)
            .await
            .unwrap();
        assert!(create.await.unwrap().is_err());
        server.until(|_| world.alive().len() == 2).await;
    });
}

#[test]
fn a_pool_is_filled_even_if_there_is_always_somebody_who_waits() {
    let world = World::new();
    let server = world.server(2);
    server.run(async {
        let gate = world.close_gate();
        let node = Arc::clone(&server.node);
        let create = tokio::spawn(async move { node.create(spec(LONG)).await });
        server.until(|_| folders(&world.sandboxes()) == 1).await;
        world.ask_for(&server, 2);
        server.until(|_| folders(&world.sandboxes()) == 3).await;
        assert!(!create.is_finished());
        gate.open();
        create.await.unwrap().unwrap();
    });
}

#[test]
fn an_end_that_is_asked_for_between_a_member_that_fails_and_its_replacement_counts() {
    let world = World::new();
    let server = world.server(2);
    server.run(async {
        world.fill(&server, 2).await;
        *world.machine.fail_inits.lock() = true;
        *world.machine.fail_destroys.lock() = true;
        let (node, mut request) = (Arc::clone(&server.node), world.spec());
        let reserved = world.reserve_warm(&server).unwrap();
        let id = reserved.id().clone();
        request.id = id.clone();
        let create = tokio::spawn(async move { node.create(request).await });
        // It cannot be handed over, and its end takes a while.
        let folder = world.sandboxes().join(id.as_str());
        server.until(|_| folder.join("ended.json").exists()).await;
        let mut kill = server.node.destroy(&id, EndReason::Killed);
        assert!(futures_util::poll!(&mut kill).is_pending());
        *world.machine.fail_destroys.lock() = false;
        kill.await.unwrap();
        let refused = create.await.unwrap();
        assert!(matches!(refused, Err(Error::SandboxNotFound(_))));
        assert!(!world.alive().contains(&id) && !folder.exists());
    });
}
