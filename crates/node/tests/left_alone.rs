//! Sandboxes that could not be taken up at a start and were left as they are: another look may find
//! them whole, and whoever gets one back has time for it.

#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::time::Duration;

use soulbox_runtime::{Node, NodeEvent, Remedy};
use soulbox_types::{OnTimeout, PauseMode, SandboxId, SandboxState, TemplateId, UnixMillis};

#[path = "support/machine.rs"]
mod machine;
#[path = "support/world.rs"]
mod world;

use machine::{LONG, spec};
use world::{World, broken, eio};

const SOME_MINUTES: Duration = Duration::from_mins(5);

fn overdue(world: &World, id: &SandboxId) {
    let lease = world.place(id).join("lease.json");
    std::fs::write(lease, r#"{"deadline":1}"#).unwrap();
}

#[tokio::test]
async fn one_whose_time_is_over_when_it_is_recovered_has_time_again() {
    let world = World::new();
    let request = world.left(None).await;
    overdue(&world, &request.id);
    *world.machine.fail_adoptions.lock() = Some(eio());
    let server = world.server().await;
    let mut events = server.events();
    *world.machine.fail_adoptions.lock() = None;

    let status = server.recover(&request.id).await.unwrap();
    assert_eq!(status.state, SandboxState::Running);
    let soon = UnixMillis::now().plus(SOME_MINUTES);
    assert!(status.spec.deadline > soon, "{:?}", status.spec.deadline);
    let ended = tokio::time::timeout(Duration::from_millis(300), events.recv()).await;
    assert!(ended.is_err(), "{ended:?}");
    drop(server);
    // Another server knows of it.
    let server = world.server().await;
    let found = server.get(&request.id).unwrap().spec.deadline;
    assert_eq!(found, status.spec.deadline);
}

#[tokio::test]
async fn who_has_more_time_keeps_it_and_who_rests_has_no_deadline() {
    for kept in [None, Some(PauseMode::Memory)] {
        let world = World::new();
        let request = world.left(kept).await;
        *world.machine.fail_adoptions.lock() = Some(eio());
        let server = world.server().await;
        *world.machine.fail_adoptions.lock() = None;
        let status = server.recover(&request.id).await.unwrap();
        assert_eq!(status.spec.deadline, request.deadline, "{kept:?}");
        assert_eq!(server.paused(&request.id).map(|paused| paused.kept), kept);
    }
}

/// At a start nobody was kept from moving it.
#[tokio::test]
async fn one_whose_time_is_over_when_a_server_starts_ends() {
    let world = World::new();
    let request = world.left(None).await;
    assert_eq!(request.lifecycle.on_timeout, OnTimeout::Kill);
    overdue(&world, &request.id);
    let server = world.server().await;
    let mut events = server.events();
    while server.get(&request.id).is_some() {
        let event = tokio::time::timeout(Duration::from_secs(20), events.recv()).await;
        assert!(matches!(event.unwrap().unwrap(), NodeEvent::Ended { .. }));
    }
}

#[tokio::test]
async fn another_look_finds_it_as_soon_as_it_can_be_taken_up() {
    let world = World::new();
    let request = world.left(None).await;
    *world.machine.fail_adoptions.lock() = Some(eio());
    let server = world.server().await;
    let first = broken(&server, &request.id);
    for _ in 0..3 {
        assert!(server.look_again(&request.id).await.unwrap().is_none());
        let again = broken(&server, &request.id);
        assert_eq!((again.at, &again.reason), (first.at, &first.reason));
        assert!(world.runs(&request.id), "a look does no harm");
    }
    *world.machine.fail_adoptions.lock() = None;
    let status = server.look_again(&request.id).await.unwrap().unwrap();
    assert_eq!(status.state, SandboxState::Running);
    assert!(server.broken().is_empty());
    assert!(
        server.look_again(&request.id).await.unwrap().is_none(),
        "once"
    );
}

#[tokio::test]
async fn a_look_decides_nothing_for_the_owner_of_a_damaged_one() {
    let world = World::new();
    let request = world.left(None).await;
    std::fs::write(world.place(&request.id).join("running.json"), "").unwrap();
    let server = world.server().await;
    assert_eq!(broken(&server, &request.id).remedy, Remedy::Repair);
    assert!(server.look_again(&request.id).await.unwrap().is_none());
    assert_eq!(broken(&server, &request.id).remedy, Remedy::Repair);

    // Nor when it turns out to be damaged later.
    let world = World::new();
    let request = world.left(None).await;
    *world.machine.fail_adoptions.lock() = Some(eio());
    let server = world.server().await;
    std::fs::write(world.place(&request.id).join("lease.json"), "").unwrap();
    assert!(server.look_again(&request.id).await.unwrap().is_none());
    assert_eq!(broken(&server, &request.id).remedy, Remedy::Repair);
    let disk = world.quarantined(&request.id).join("disk.img");
    assert_eq!(std::fs::read_to_string(disk).unwrap(), "its files");
}

#[tokio::test]
async fn what_one_stands_on_that_was_left_alone_stays() {
    let world = World::new();
    let server = world.server().await;
    let source = spec(LONG);
    server.create(source.clone()).await.unwrap();
    let image = TemplateId::random();
    server.snapshot(&source.id, image.clone()).await.unwrap();
    let request = soulbox_types::SandboxSpec {
        snapshot: Some(image.clone()),
        ..spec(LONG)
    };
    server.create(request.clone()).await.unwrap();
    drop(server);
    // Of another file than the one that says what it stands on.
    let lease = world.place(&request.id).join("lease.json");
    std::fs::create_dir(&lease).unwrap();
    let server = world.server().await;
    assert_eq!(broken(&server, &request.id).remedy, Remedy::Retry);
    let refused = server.delete_snapshot(&image).await.unwrap_err();
    assert!(
        refused.to_string().contains(request.id.as_str()),
        "{refused}"
    );
}

#[tokio::test]
async fn nothing_is_removed_while_it_is_not_known_what_something_stands_on() {
    let world = World::new();
    let server = world.server().await;
    let source = spec(LONG);
    server.create(source.clone()).await.unwrap();
    let images = [TemplateId::random(), TemplateId::random()];
    for image in &images {
        server.snapshot(&source.id, image.clone()).await.unwrap();
    }
    let request = spec(LONG);
    server.create(request.clone()).await.unwrap();
    assert!(!server.keeps_unknown());
    drop(server);

    std::fs::write(world.place(&request.id).join("spec.json"), "").unwrap();
    let server = world.server().await;
    assert!(server.keeps_unknown(), "a sandbox");
    let refused = server.delete_snapshot(&images[0]).await.unwrap_err();
    assert!(refused.to_string().contains("cannot be read"), "{refused}");
    server.discard(&request.id).await.unwrap();
    assert!(!server.keeps_unknown());
    drop(server);

    let manifest = machine::snapshots_dir(&world.sandboxes())
        .join(images[1].as_str())
        .join("manifest.json");
    std::fs::write(manifest, "").unwrap();
    let server = world.server().await;
    assert!(server.keeps_unknown(), "a snapshot");
    assert!(server.delete_snapshot(&images[0]).await.is_err());
}
