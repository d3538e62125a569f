//! Which builds run, wait, are cancelled or take too long.

use super::*;

#[tokio::test]
async fn a_newer_build_of_the_same_tags_cancels_one_that_was_never_started() {
    let world = world().await;
    let (old, other) = (world.ask("app").await, world.ask("app:v2").await);
    let new = world.ask("app").await;
    assert_eq!(world.row(&old).status, BuildStatus::Error);
    assert_eq!(world.row(&other).status, BuildStatus::Waiting);
    assert_eq!(world.row(&new).status, BuildStatus::Waiting);
    let reason = world.row(&old).reason.unwrap().message;
    assert!(reason.starts_with("build was cancelled"), "{reason}");
}

#[tokio::test]
async fn a_build_is_cancelled_waiting_queued_or_running() {
    let world = world().await;
    let held = world.builder.gate.write().await;
    let mut builds = Vec::new();
    for name in ["a", "b", "c"] {
        let asked = world.ask(name).await;
        world.start(&asked, request(image(), vec![])).await;
        // Also while it only waits for its turn.
        assert_eq!(world.row(&asked).status, BuildStatus::Building);
        builds.push(asked);
    }
    let waiting = world.ask("d").await;
    for asked in builds.iter().chain([&waiting]) {
        let cancel = || {
            let template = asked.template.as_str();
            world
                .control
                .cancel_build(&world.tenant, template, &asked.build)
        };
        cancel().await.unwrap();
        assert_eq!(world.row(asked).status, BuildStatus::Error);
        let reason = world.row(asked).reason.unwrap().message;
        assert!(reason.starts_with("build was cancelled"), "{reason}");
        cancel().await.unwrap();
    }
    drop(held);
    let ready = world.build("e").await;
    let template = ready.template.as_str();
    let late = world
        .control
        .cancel_build(&world.tenant, template, &ready.build)
        .await;
    assert!(matches!(late, Err(Error::BuildEnded(_))));
}

#[tokio::test]
async fn only_so_many_builds_run_at_a_time_and_only_so_many_are_a_tenants() {
    let world = world_with(|builds| builds.max_per_tenant = 4).await;
    let held = world.builder.gate.write().await;
    let mut builds = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let asked = world.ask(name).await;
        world.start(&asked, request(image(), vec![])).await;
        builds.push(asked);
    }
    let fifth = world.control.request_build(&world.tenant, ask("e")).await;
    assert!(matches!(fifth, Err(Error::TooManyBuilds(4))));
    drop(held);
    for asked in &builds {
        assert_eq!(world.ended(asked).await.status, BuildStatus::Ready);
    }
    assert!(world.builder.most_running.load(Ordering::SeqCst) <= 2);
}

#[tokio::test]
async fn a_build_that_takes_too_long_is_told_so() {
    let world = world_with(|builds| builds.max_duration = Duration::from_millis(10)).await;
    let _held = world.builder.gate.write().await;
    let asked = world.ask("app").await;
    world.start(&asked, request(image(), vec![])).await;
    let reason = world.ended(&asked).await.reason.unwrap();
    assert_eq!(reason.message, "build timed out");
}

#[tokio::test]
async fn a_waiting_sandbox_is_taken_when_it_fits() {
    let world = world().await;
    let asked = world.build("app").await;
    let warm = SandboxId::random();
    world.node.warm(&asked.template, &asked.build, &warm);
    let made = world.create("app").await.unwrap();
    assert_eq!(made.id, warm);
    let spec = world.node.get(&warm).unwrap().spec;
    assert_eq!(spec.access_token, made.access_token);
    let cold = world.create("app").await.unwrap();
    assert_ne!(cold.id, warm);
    assert_ne!(cold.access_token, made.access_token);
    let requests = world.node.requests();
    assert_eq!(requests.len(), 2);
    let key = requests[0].pool_key.as_ref().unwrap();
    assert_eq!(key.disk_mib, Limits::default().disk_mib);
    assert!(world.node.reserved().is_empty());
}
