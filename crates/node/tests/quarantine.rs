//! What cannot be read is not absent: nothing with a disk is removed because of it.

#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures_util::TryStreamExt;
use soulbox_runtime::{Error, Node, Remedy};
use soulbox_types::{
    EndReason, PauseMode, Purpose, SandboxId, SandboxSpec, SandboxState, TemplateId, UnixMillis,
};

#[path = "support/machine.rs"]
mod machine;
#[path = "support/world.rs"]
mod world;

use machine::{LONG, config, ends_dir, spec};
use world::{World, broken, eio};

const FILES: [&str; 6] = [
    "spec.json",
    "running.json",
    "paused.json",
    "lease.json",
    "warm.json",
    "ended.json",
];

fn make_old(path: &Path) {
    let file = std::fs::File::open(path).unwrap();
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_hours(24);
    file.set_modified(long_ago).unwrap();
}

#[tokio::test]
async fn whatever_file_is_damaged_the_disk_is_kept_and_told_with_the_reason() {
    for file in FILES {
        for text in ["", "{", "true"] {
            for kept in [None, Some(PauseMode::Memory), Some(PauseMode::Filesystem)] {
                let world = World::new();
                let request = world.left(kept).await;
                std::fs::write(world.place(&request.id).join(file), text).unwrap();
                let server = world.server().await;
                let found = broken(&server, &request.id);
                assert!(found.reason.contains(file), "{file}: {}", found.reason);
                assert!(server.get(&request.id).is_none());
                assert!(!world.runs(&request.id), "what cannot be adopted ends");
                assert!(!world.place(&request.id).exists());
                let disk = world.quarantined(&request.id).join("disk.img");
                assert_eq!(std::fs::read_to_string(disk).unwrap(), "its files");
                assert!(
                    server.unrecorded_ends().await.is_empty(),
                    "it has not ended"
                );
                // As the next one finds it too.
                drop(server);
                let server = world.server().await;
                let again = broken(&server, &request.id);
                assert_eq!((again.reason, again.at), (found.reason, found.at));
            }
        }
    }
}

#[tokio::test]
async fn all_but_a_damaged_spec_can_be_recovered_and_comes_back_with_its_files() {
    for file in FILES {
        let world = World::new();
        let request = world.left(Some(PauseMode::Memory)).await;
        std::fs::write(world.place(&request.id).join(file), "").unwrap();
        let server = world.server().await;
        let found = broken(&server, &request.id);
        if file == "spec.json" {
            assert_eq!(found.remedy, Remedy::Export);
            let refused = server.recover(&request.id).await.unwrap_err();
            assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
            assert!(world.quarantined(&request.id).exists());
            continue;
        }
        assert_eq!(found.remedy, Remedy::Repair, "{file}");
        let status = server.recover(&request.id).await.unwrap();
        assert_eq!(status.state, SandboxState::Paused);
        assert_eq!(status.spec.metadata, request.metadata);
        assert_eq!(
            server.paused(&request.id).unwrap().kept,
            PauseMode::Filesystem
        );
        assert!(server.broken().is_empty());
        drop(server);
        // On disk too.
        let server = world.server().await;
        assert_eq!(
            server.paused(&request.id).unwrap().kept,
            PauseMode::Filesystem
        );
        let disk = world.place(&request.id).join("disk.img");
        assert_eq!(std::fs::read_to_string(disk).unwrap(), "its files");
        let later = UnixMillis::now().plus(LONG);
        server
            .resume(&request.id, later, PauseMode::Memory)
            .await
            .unwrap();
        assert!(world.runs(&request.id));
        assert!(
            server.recover(&request.id).await.is_err(),
            "it is not broken"
        );
    }
}

#[tokio::test]
async fn the_disk_of_a_broken_one_can_be_read_and_it_goes_only_when_it_is_discarded() {
    let world = World::new();
    let request = world.left(None).await;
    std::fs::write(world.place(&request.id).join("spec.json"), "").unwrap();
    let server = world.server().await;
    let disk = server.broken_disk(&request.id).await.unwrap();
    let chunks: Vec<_> = disk.try_collect().await.unwrap();
    let head = |start: u64, length: u64| [start.to_be_bytes(), length.to_be_bytes()].concat();
    let whole = [&*head(0, 9), b"its files", &*head(9, 0)].concat();
    assert_eq!(chunks.concat(), whole);
    server.discard(&request.id).await.unwrap();
    assert!(matches!(
        server.discard(&request.id).await,
        Err(Error::SandboxNotFound(_))
    ));
    assert!(server.broken().is_empty());
    assert!(!world.quarantined(&request.id).exists());
}

/// A folder where a file should be stands for a disk that does not give it.
#[tokio::test]
async fn what_cannot_be_read_this_time_is_left_as_it_is_and_runs_on() {
    for file in FILES {
        let world = World::new();
        let request = world.left(None).await;
        let place = world.place(&request.id).join(file);
        let before = std::fs::read(&place).ok();
        let _absent = std::fs::remove_file(&place);
        std::fs::create_dir(&place).unwrap();
        let server = world.server().await;
        let found = broken(&server, &request.id);
        assert_eq!(found.remedy, Remedy::Retry, "{file}");
        assert!(found.reason.contains("directory"), "{}", found.reason);
        assert!(world.runs(&request.id), "{file}");
        assert!(!world.machine.destroyed.lock().contains(&request.id));
        let kept = world.machine.kept_by_reclaim.lock().clone();
        assert!(kept.contains(&request.id), "nobody clears it away");
        assert!(server.discard(&request.id).await.is_err());
        assert!(server.broken_disk(&request.id).await.is_err());
        assert!(server.recover(&request.id).await.is_err());
        assert!(world.runs(&request.id), "a try does no harm");

        std::fs::remove_dir(&place).unwrap();
        if let Some(text) = before {
            std::fs::write(&place, text).unwrap();
        }
        let status = server.recover(&request.id).await.unwrap();
        assert_eq!(status.state, SandboxState::Running, "{file}");
        assert!(world.runs(&request.id) && server.broken().is_empty());
    }
}

#[tokio::test]
async fn one_that_cannot_be_taken_up_is_left_as_it_is() {
    let world = World::new();
    let request = world.left(Some(PauseMode::Memory)).await;
    *world.machine.fail_adoptions.lock() = Some(eio());
    let server = world.server().await;
    assert_eq!(broken(&server, &request.id).remedy, Remedy::Retry);
    assert!(world.runs(&request.id) && world.place(&request.id).exists());
    drop(server);
    *world.machine.fail_adoptions.lock() = None;
    let server = world.server().await;
    assert_eq!(server.paused(&request.id).unwrap().kept, PauseMode::Memory);
}

#[tokio::test]
async fn for_want_of_descriptors_a_start_fails_and_touches_nothing() {
    let world = World::new();
    let (alive, ended) = (world.left(None).await, world.left(None).await);
    let wreck = world.left(None).await;
    std::fs::write(
        world.place(&ended.id).join("ended.json"),
        r#"{"reason":"killed"}"#,
    )
    .unwrap();
    std::fs::write(world.place(&wreck.id).join("spec.json"), "").unwrap();
    *world.machine.fail_adoptions.lock() = Some(rustix::io::Errno::MFILE.raw_os_error());
    let opened = machine::try_open(config(&world.sandboxes()), &world.machine).await;
    assert!(opened.is_err());
    for request in [&alive, &ended, &wreck] {
        assert!(world.runs(&request.id) && world.place(&request.id).exists());
    }
    assert!(world.machine.destroyed.lock().is_empty());
    *world.machine.fail_adoptions.lock() = None;
    let server = world.server().await;
    assert!(server.get(&alive.id).is_some());
    assert_eq!(broken(&server, &wreck.id).remedy, Remedy::Export);
    assert!(!world.place(&ended.id).exists());
}

#[tokio::test]
async fn what_has_no_disk_goes_and_is_told_if_anybody_may_ask() {
    let world = World::new();
    let (known, unknown) = (world.left(None).await, world.left(None).await);
    for request in [&known, &unknown] {
        std::fs::remove_file(world.place(&request.id).join("disk.img")).unwrap();
    }
    std::fs::write(world.place(&known.id).join("running.json"), "").unwrap();
    std::fs::write(world.place(&unknown.id).join("spec.json"), "").unwrap();
    let trial = world.place(&SandboxId::random());
    std::fs::create_dir(&trial).unwrap();
    for file in ["disk.img", "trial"] {
        std::fs::write(trial.join(file), "nobody's").unwrap();
    }
    let server = world.server().await;
    assert!(server.broken().is_empty() && !trial.exists());
    assert!(!world.place(&known.id).exists() && !world.place(&unknown.id).exists());
    let ends = server.unrecorded_ends().await;
    assert_eq!(ends.len(), 1);
    assert_eq!(ends[0].reason, EndReason::Lost);
    assert!(ends[0].detail.contains("running.json is empty"), "{ends:?}");
}

#[tokio::test]
async fn that_it_ended_counts_more_than_what_is_damaged() {
    let world = World::new();
    let request = world.left(None).await;
    let server = world.server().await;
    *world.machine.fail_destroys.lock() = true;
    let ending = tokio::spawn({
        let (server, id) = (Arc::clone(&server), request.id.clone());
        async move { server.destroy(&id, EndReason::Killed).await }
    });
    let marker = world.place(&request.id).join("ended.json");
    while !marker.exists() {
        tokio::task::yield_now().await;
    }
    ending.abort();
    drop(server);
    *world.machine.fail_destroys.lock() = false;
    std::fs::write(world.place(&request.id).join("spec.json"), "").unwrap();
    std::fs::write(world.place(&request.id).join("running.json"), "").unwrap();
    let server = world.server().await;
    assert!(server.broken().is_empty());
    assert!(!world.place(&request.id).exists());
    let ends = server.unrecorded_ends().await;
    assert_eq!(ends[0].reason, EndReason::Killed);
}

#[tokio::test]
async fn a_damaged_record_of_an_end_is_kept_aside_and_the_folder_too() {
    let world = World::new();
    let request = world.left(None).await;
    let record = ends_dir(&world.sandboxes()).join(format!("{}.json", request.id));
    std::fs::write(&record, "").unwrap();
    let server = world.server().await;
    let found = broken(&server, &request.id);
    assert!(found.reason.contains("the record of its end"), "{found:?}");
    assert!(server.unrecorded_ends().await.is_empty());
    assert!(!record.exists() && record.with_extension("damaged").exists());
    server.recover(&request.id).await.unwrap();
    assert!(server.paused(&request.id).is_some());
}

/// What a power cut may leave of a create that was answered: its spec, but not that it was ready,
/// or that it became somebody's.
#[tokio::test]
async fn after_a_restart_of_the_machine_missing_files_condemn_nobody() {
    type Change = fn(&Path);
    let changes: [Change; 3] = [
        |place| std::fs::remove_file(place.join("running.json")).unwrap(),
        |place| std::fs::write(place.join("unready.json"), "null").unwrap(),
        |place| std::fs::write(place.join("warm.json"), r#"{"build_id":"b"}"#).unwrap(),
    ];
    for change in changes {
        for old in [false, true] {
            let world = World::new();
            let request = world.left(None).await;
            change(&world.place(&request.id));
            if old {
                make_old(&world.place(&request.id).join("spec.json"));
            }
            let server = world.server().await;
            assert!(server.list().is_empty() && !world.place(&request.id).exists());
            if !old {
                assert!(server.broken().is_empty(), "nobody was answered");
                continue;
            }
            let found = broken(&server, &request.id);
            assert!(found.unsure && found.reason.contains("machine was restarted"));
            server.recover(&request.id).await.unwrap();
        }
    }
}

#[tokio::test]
async fn what_waited_for_a_user_when_the_machine_was_restarted_may_have_found_one() {
    let world = World::new();
    let server = world.server().await;
    let request = SandboxSpec {
        purpose: Purpose::Warm,
        ..spec(LONG)
    };
    server.create(request.clone()).await.unwrap();
    drop(server);
    make_old(&world.place(&request.id).join("spec.json"));
    let server = world.server().await;
    let found = broken(&server, &request.id);
    assert!(found.unsure && found.spec.is_none());
    assert_eq!(found.remedy, Remedy::Export);
}

#[tokio::test]
async fn a_snapshot_stays_while_a_broken_one_stands_on_it() {
    let world = World::new();
    let server = world.server().await;
    let source = spec(LONG);
    server.create(source.clone()).await.unwrap();
    let image = TemplateId::random();
    server.snapshot(&source.id, image.clone()).await.unwrap();
    let request = SandboxSpec {
        snapshot: Some(image.clone()),
        ..spec(LONG)
    };
    server.create(request.clone()).await.unwrap();
    drop(server);
    std::fs::write(world.place(&request.id).join("running.json"), "").unwrap();
    let server = world.server().await;
    let refused = server.delete_snapshot(&image).await.unwrap_err();
    assert!(
        refused.to_string().contains(request.id.as_str()),
        "{refused}"
    );
    server.discard(&request.id).await.unwrap();
    server.delete_snapshot(&image).await.unwrap();
}
