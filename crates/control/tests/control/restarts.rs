//! What another server finds of the one before.

use super::*;

#[tokio::test]
async fn a_restart_keeps_what_runs_and_marks_what_is_lost() {
    let mut world = world().await;
    let (kept, lost) = (world.make().await, world.make().await);
    world.node.forget(&lost);
    world.restart().await;
    let ids: Vec<_> = world
        .control
        .list(&world.tenant)
        .into_iter()
        .map(|status| status.spec.id.clone())
        .collect();
    assert_eq!(ids, [kept]);
    assert_eq!(world.row(&lost).await.end.unwrap().reason, EndReason::Lost);
    assert_eq!(world.ends_heard(&lost).await, ["lost"]);
}

#[tokio::test]
async fn what_ended_while_no_server_was_there_is_told_as_if_one_had_been() {
    let mut world = world().await;
    let (seen, unseen) = (world.make().await, world.make().await);
    world.node.end(&seen, EndReason::Died, "signal 9");
    eventually("the end is written", async || {
        world.row(&seen).await.end.is_some()
    })
    .await;
    world.node.end_unheard(&unseen, EndReason::Died, "signal 9");
    world.restart().await;
    let error = world.control.get(&world.tenant, &unseen).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("died: signal 9"), "{error}");

    let [one, other] = [world.killed(&seen).await, world.killed(&unseen).await];
    let shape = |event: &Event| {
        let mut data = event.data.clone();
        for varies in ["started_at", "execution_time"] {
            let execution = data["execution"].as_object_mut().unwrap();
            assert!(execution.remove(varies).is_some());
        }
        (data, event.template.clone(), event.build.clone())
    };
    assert_eq!((one.len(), other.len()), (1, 1));
    assert_eq!(shape(&one[0]), shape(&other[0]));
}

#[tokio::test]
async fn the_node_forgets_an_end_when_it_and_its_event_are_on_record_and_nobody_hears_it_twice() {
    let mut world = world().await;
    let (killed, died) = (world.make().await, world.make().await);
    world.control.kill(&world.tenant, &killed).await.unwrap();
    assert_eq!(world.ends_heard(&killed).await, ["killed"]);
    // As if the server had died before the node was told that the end is on record.
    world.node.add(SandboxSpec {
        id: killed.clone(),
        ..stray(world.tenant.id.clone())
    });
    world.node.end_unheard(&killed, EndReason::Killed, "");
    world.node.end_unheard(&died, EndReason::Died, "signal 9");
    for _ in 0..2 {
        world.restart().await;
        eventually("the node forgets", async || world.node.ends() == 0).await;
    }
    assert_eq!(world.ends_heard(&killed).await, ["killed"]);
    assert_eq!(world.ends_heard(&died).await, ["died"]);
}

#[tokio::test]
async fn one_that_dies_while_a_server_starts_is_told_once() {
    let mut world = world().await;
    for moment in [Moment::Before, Moment::After] {
        let id = world.make().await;
        world.node.die_when_asked(&id, moment);
        world.restart().await;
        eventually("the node forgets", async || world.node.ends() == 0).await;
        let end = world.row(&id).await.end.unwrap();
        assert_eq!((end.reason, &*end.detail), (EndReason::Died, "signal 9"));
        assert_eq!(world.ends_heard(&id).await, ["died"], "{moment:?}");
    }
}

#[tokio::test]
async fn a_creation_whose_event_was_lost_with_its_server_is_told_by_the_next() {
    let mut world = world().await;
    let described = world.make().await;
    let untold = || stray(world.tenant.id.clone());
    let (runs, ended, recorded) = (untold(), untold(), untold());
    for spec in [&runs, &ended, &recorded] {
        record(&world, spec).await;
        world.node.add(spec.clone());
    }
    world.node.end_unheard(&ended.id, EndReason::Died, "");
    world.node.end_unheard(&recorded.id, EndReason::Died, "");
    let end = EndRow::now(EndReason::Died, "");
    let store = store(world.folder.path()).await;
    store.end_sandbox(&recorded.id, &end).await.unwrap();
    for _ in 0..2 {
        world.restart().await;
        assert_eq!(world.kinds_heard(&described).await, ["created"]);
        assert_eq!(world.kinds_heard(&runs.id).await, ["created"]);
        for id in [&ended.id, &recorded.id] {
            assert_eq!(world.kinds_heard(id).await, ["created", "killed"]);
        }
    }
    let event = world.events(&runs.id).await.remove(0);
    assert_eq!(event.at, runs.created_at);
}

#[tokio::test]
async fn a_creation_that_was_told_long_ago_is_not_told_again() {
    let mut world = world().await;
    let old = SandboxSpec {
        created_at: UnixMillis(UnixMillis::now().0 - 120_000),
        ..stray(world.tenant.id.clone())
    };
    record(&world, &old).await;
    world.node.add(old.clone());
    // The last server wrote this event, so it had written those before as well.
    let newer = world.make().await;
    assert_eq!(world.kinds_heard(&newer).await, ["created"]);
    world.restart().await;
    assert!(world.kinds_heard(&old.id).await.is_empty());
}

#[tokio::test]
async fn what_never_came_to_be_ends_without_an_event() {
    let mut world = world().await;
    let (half_made, not_made) = (
        stray(world.tenant.id.clone()),
        stray(world.tenant.id.clone()),
    );
    for spec in [&half_made, &not_made] {
        record(&world, spec).await;
    }
    world.node.add(half_made.clone());
    let id = &half_made.id;
    world
        .node
        .end_unheard(id, EndReason::CreateFailed, "the server stopped");
    world.restart().await;
    let end = |row: SandboxRow| row.end.unwrap().reason;
    assert_eq!(end(world.row(id).await), EndReason::CreateFailed);
    assert_eq!(end(world.row(&not_made.id).await), EndReason::Lost);
    for spec in [&half_made, &not_made] {
        assert!(world.events(&spec.id).await.is_empty());
    }
}

#[tokio::test]
async fn a_sandbox_without_a_row_is_recorded_for_a_known_tenant_and_destroyed_otherwise() {
    let mut world = world().await;
    let known = stray(world.tenant.id.clone());
    let unknown = stray("01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap());
    world.node.add(known.clone());
    world.node.add(unknown.clone());
    world.restart().await;
    assert!(world.control.get(&world.tenant, &known.id).await.is_ok());
    assert!(world.row(&known.id).await.end.is_none());
    assert!(world.node.get(&unknown.id).is_none());
}

#[tokio::test]
async fn after_a_crash_during_create_the_outcome_is_found_or_honestly_unknown() {
    let mut world = world().await;
    let store = store(world.folder.path()).await;
    for (key, runs) in [("here", true), ("gone", false)] {
        let spec = stray(world.tenant.id.clone());
        let row = row_of(&spec);
        let record = soulbox_store::IdempotencyRecord {
            tenant: world.tenant.id.clone(),
            key: key.into(),
            // sha256 of "x"
            fingerprint: "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881".into(),
        };
        store
            .insert_sandbox_once(&row, &record, UnixMillis(0))
            .await
            .unwrap();
        if runs {
            world.node.add(spec);
        }
    }
    world.restart().await;
    assert!(world.create(keyed("here", "x")).await.is_ok());
    let unknown = world.create(keyed("gone", "x")).await;
    assert!(matches!(unknown, Err(Error::IdempotencyOutcomeUnknown)));
    assert_eq!(world.node.creates.load(Ordering::Relaxed), 0);
}
