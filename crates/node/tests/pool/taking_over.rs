//! Whoever finds none ready takes over one that is being made.

use super::*;

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
