//! Whoever takes one that waits.

use super::*;

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
fn one_that_can_neither_be_handed_over_nor_be_ended_is_no_sandbox_and_says_why() {
    let world = World::new();
    let server = world.server(1);
    server.run(async {
        world.fill(&server, 1).await;
        let gate = Arc::new(Notify::new());
        *world.machine.fail_inits.lock() = true;
        *world.machine.end_gate.lock() = Some(Arc::clone(&gate));
        let failed = world.create(&server).await.unwrap_err();
        let Error::Start { step, .. } = &failed else {
            panic!("{failed}");
        };
        assert_eq!(step, "envd's settings");
        assert!(server.node.list().is_empty());

        *world.machine.fail_inits.lock() = false;
        *world.machine.end_gate.lock() = None;
        gate.notify_waiters();
        server
            .until(|_| !world.machine.destroyed.lock().is_empty())
            .await;
        world.create(&server).await.unwrap();
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
