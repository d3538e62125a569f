//! What is left of the pool when the server stops or is killed.

use super::*;

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
