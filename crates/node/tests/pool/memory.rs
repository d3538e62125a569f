//! How large the pool may be.

use super::*;

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
