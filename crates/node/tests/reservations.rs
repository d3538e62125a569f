//! Reservations: what a create finds, and what is left of one that nobody uses.

#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

#[path = "support/machine.rs"]
mod machine;
#[path = "support/pool.rs"]
mod support;

use std::{collections::HashSet, sync::Arc, time::Duration};

use soulbox_runtime::{Error, Node, PREPARED_HOLDS, Reservation, ReservationSource};
use soulbox_types::{EndReason, SandboxId, SandboxSpec, SandboxState, UnixMillis};
use support::{Server, World, folders};

/// A slot that the machine has prepared.
fn prepare(world: &World) -> SandboxId {
    let id = SandboxId::random();
    world.machine.slots.lock().ready.push(id.clone());
    id
}

fn spec_for(world: &World, reserved: &Reservation) -> SandboxSpec {
    SandboxSpec {
        id: reserved.id().clone(),
        ..world.spec()
    }
}

/// Nothing but the pool's own sandboxes is there, and nothing is reserved.
async fn nothing_is_left(world: &World, server: &Server, pool: usize) {
    server
        .until(|node| node.pool_stats().ready == pool && folders(&world.sandboxes()) == pool)
        .await;
    assert_eq!(world.alive().len(), pool);
    assert!(server.node.list().is_empty());
    assert!(world.machine.slots.lock().reserved.is_empty());
}

#[test]
fn a_reservation_says_what_it_got_and_for_how_long() {
    let world = World::new();
    let server = world.server(2);
    server.run(async {
        world.fill(&server, 2).await;
        let slot = prepare(&world);
        let in_time = |reserved: &Reservation, holds| {
            let until = reserved.reserved().until.unwrap();
            let latest = UnixMillis::now().plus(holds);
            until > UnixMillis::now() && until <= latest
        };

        // With a volume, or from a snapshot.
        let prepared = server.reserve(None);
        assert_eq!(prepared.source(), ReservationSource::Prepared);
        assert_eq!(*prepared.id(), slot);
        assert!(in_time(&prepared, PREPARED_HOLDS));

        let fresh = server.reserve(None);
        assert_eq!(fresh.source(), ReservationSource::Fresh);
        assert_eq!(fresh.reserved().until, None);
        assert!(!world.alive().contains(fresh.id()) && *fresh.id() != slot);

        let warm = server.reserve(Some(world.key()));
        assert_eq!(warm.source(), ReservationSource::Warm);
        assert!(world.alive().contains(warm.id()));
        assert!(in_time(&warm, Duration::from_secs(10)));
    });
}

#[test]
fn a_warm_sandbox_whose_reservation_is_dropped_ends_and_another_takes_its_place() {
    let world = World::new();
    let server = world.server(2);
    server.run(async {
        world.fill(&server, 2).await;
        let mut events = server.node.events();
        let reserved = world.reserve_warm(&server).unwrap();
        let id = reserved.id().clone();
        drop(reserved);
        server.until(|_| !world.alive().contains(&id)).await;
        nothing_is_left(&world, &server, 2).await;
        // Its id may be in the store.
        let next = [(); 2].map(|()| world.reserve_warm(&server).unwrap());
        assert!(next.iter().all(|reserved| *reserved.id() != id));
        assert!(events.try_recv().is_err(), "nobody was told of it");
    });
}

#[test]
fn a_prepared_slot_whose_reservation_is_dropped_is_given_back_once() {
    let world = World::new();
    let server = world.server(0);
    let slot = prepare(&world);
    drop(server.reserve(None));
    assert_eq!(world.machine.slots.lock().released, [slot]);
    server.run(nothing_is_left(&world, &server, 0));
}

#[test]
fn what_a_create_has_used_is_not_released() {
    let world = World::new();
    let server = world.server(2);
    server.run(async {
        world.fill(&server, 2).await;
        prepare(&world);
        for key in [None, Some(world.key())] {
            let reserved = server.reserve(key);
            assert_ne!(reserved.source(), ReservationSource::Fresh);
            let spec = spec_for(&world, &reserved);
            server.node.create(spec.clone()).await.unwrap();
            drop(reserved);
            server.until(|node| node.pool_stats().ready == 2).await;
            let status = server.node.get(&spec.id).unwrap();
            assert_eq!(status.state, SandboxState::Running);
            assert!(world.alive().contains(&spec.id));
        }
        let slots = world.machine.slots.lock();
        assert!(slots.released.is_empty() && slots.reserved.is_empty());
        assert_eq!(slots.used.len(), 1);
    });
}

#[test]
fn a_create_that_is_refused_leaves_its_slot_to_its_reservation() {
    let world = World::new();
    let server = world.server_with(0, "current", |mut config| {
        config.max_sandboxes = 0;
        config
    });
    let slot = prepare(&world);
    server.run(async {
        let reserved = server.reserve(Some(world.key()));
        let refused = server.node.create(spec_for(&world, &reserved)).await;
        assert!(matches!(refused, Err(Error::NoCapacity { .. })));
        drop(reserved);
        assert_eq!(world.machine.slots.lock().released, [slot]);
        nothing_is_left(&world, &server, 0).await;
    });
}

/// Its release and the create with its id meet at every moment of the sandbox's end.
#[test]
fn a_create_whose_reservation_was_released_is_served_all_the_same() {
    let world = World::new();
    let server = world.server(2);
    server.run(async {
        for round in 0..60 {
            world.fill(&server, 2).await;
            let reserved = world.reserve_warm(&server).unwrap();
            let spec = spec_for(&world, &reserved);
            drop(reserved);
            for _ in 0..round {
                tokio::task::yield_now().await;
            }
            let status = server.node.create(spec.clone()).await.unwrap();
            assert_eq!(status.spec.metadata, spec.metadata);
            server.until(|node| node.pool_stats().ready == 2).await;
            assert!(server.node.get(&spec.id).is_some(), "round {round}");
            let killed = server.node.destroy(&spec.id, EndReason::Killed).await;
            killed.unwrap();
        }
        nothing_is_left(&world, &server, 2).await;
    });
}

#[test]
fn a_create_that_nobody_waits_for_any_more_is_finished_and_leaves_nothing_reserved() {
    let world = World::new();
    let server = world.server(2);
    server.run(async {
        world.fill(&server, 2).await;
        prepare(&world);
        for key in [None, None, Some(world.key())] {
            let gate = world.close_gate();
            let reserved = server.reserve(key);
            let spec = spec_for(&world, &reserved);
            let mut create = server.node.create(spec.clone());
            assert!(futures_util::poll!(&mut create).is_pending());
            drop((create, reserved));
            gate.open();
            let state = |id| server.node.get(id).map(|status| status.state);
            let is_there = || state(&spec.id) == Some(SandboxState::Running);
            server.until(|_| is_there()).await;
            let killed = server.node.destroy(&spec.id, EndReason::Killed).await;
            killed.unwrap();
        }
        nothing_is_left(&world, &server, 2).await;
    });
}

#[test]
fn a_create_that_was_never_begun_leaves_nothing() {
    let world = World::new();
    let server = world.server(2);
    server.run(async {
        world.fill(&server, 2).await;
        let slot = prepare(&world);
        let mut last = None;
        for key in [None, Some(world.key())] {
            let reserved = server.reserve(key);
            drop(server.node.create(spec_for(&world, &reserved)));
            last = Some(reserved.id().clone());
        }
        assert_eq!(world.machine.slots.lock().released, [slot]);
        let warm = last.unwrap();
        server.until(|_| !world.alive().contains(&warm)).await;
        nothing_is_left(&world, &server, 2).await;
    });
}

/// The pool makes its sandboxes in prepared slots, so that one id is reserved twice: by the pool,
/// until the sandbox is made, and by whoever it is for.
#[test]
fn the_pool_releases_its_slot_and_not_the_sandbox_that_somebody_has_reserved() {
    let world = World::new();
    let server = world.server_with(2, "current", |mut config| {
        config.pool.at_once = 1;
        config
    });
    let slots: HashSet<_> = (0..3).map(|_| prepare(&world)).collect();
    server.run(async {
        // Two requests took slots and gave them back.
        let (half_made, gate) = world.half_made(&server).await;
        assert!(slots.contains(&half_made));
        let reserved = world.reserve_warm(&server).unwrap();
        assert_eq!(*reserved.id(), half_made);
        gate.open();
        server
            .until(|node| node.pool_stats().ready == 2 && world.alive().contains(&half_made))
            .await;
        let status = server.node.create(spec_for(&world, &reserved)).await;
        assert_eq!(status.unwrap().spec.id, half_made);
        assert!(!world.machine.destroyed.lock().contains(&half_made));
        let slots = world.machine.slots.lock();
        assert_eq!(slots.used, [half_made]);
        assert_eq!((slots.released.len(), slots.reserved.len()), (2, 0));
    });
}

#[test]
fn many_at_once_never_get_the_same() {
    let world = World::new();
    let server = world.server(5);
    server.run(async {
        world.fill(&server, 5).await;
        for _ in 0..5 {
            prepare(&world);
        }
        let server = &server;
        let key = world.key();
        let reserved: Vec<Reservation> = std::thread::scope(|scope| {
            let reserve = |_| scope.spawn(|| server.reserve(Some(key.clone())));
            let asked: Vec<_> = (0..20).map(reserve).collect();
            asked.into_iter().map(|it| it.join().unwrap()).collect()
        });
        let ids: HashSet<_> = reserved.iter().map(Reservation::id).collect();
        assert_eq!(ids.len(), 20);
        let count = |source| reserved.iter().filter(|r| r.source() == source).count();
        assert!(count(ReservationSource::Warm) >= 5);
        assert!(count(ReservationSource::Prepared) >= 1);
    });
}

#[test]
fn a_reservation_may_outlive_its_node() {
    let world = World::new();
    let server = world.server(0);
    prepare(&world);
    let reserved = server.reserve(None);
    let node = Arc::downgrade(&server.node);
    drop(server);
    assert!(node.upgrade().is_none());
    drop(reserved);
    assert!(world.machine.slots.lock().released.is_empty());
}
