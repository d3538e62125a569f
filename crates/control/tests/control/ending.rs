//! The end of a sandbox, and who learns of it.

use super::*;

#[tokio::test]
async fn a_killed_sandbox_is_gone_and_its_owner_learns_why() {
    let world = world().await;
    let id = world.make().await;
    world.control.kill(&world.tenant, &id).await.unwrap();
    assert!(world.node.get(&id).is_none());
    assert!(world.control.list(&world.tenant).is_empty());
    let again = world.control.kill(&world.tenant, &id).await.unwrap_err();
    assert!(again.to_string().contains("killed"), "{again}");
    assert_eq!(world.row(&id).await.end.unwrap().reason, EndReason::Killed);
}

#[tokio::test]
async fn of_two_kills_at_once_one_succeeds_and_the_other_waits_for_it() {
    let world = world().await;
    let id = world.make().await;
    let held = world.node.destroying.write().await;
    let kill = || {
        let (control, tenant, id) = (world.control.clone(), world.tenant.clone(), id.clone());
        tokio::spawn(async move { control.kill(&tenant, &id).await })
    };
    let (first, second) = (kill(), kill());
    eventually("the kill begins", async || {
        world.control.list(&world.tenant).is_empty()
    })
    .await;
    let connect = world
        .control
        .connect(&world.tenant, &id, 10, PauseMode::Memory)
        .await;
    assert!(matches!(connect, Err(Error::SandboxEnding { .. })));
    assert!(!first.is_finished() && !second.is_finished());
    drop(held);
    let results = [first.await.unwrap(), second.await.unwrap()];
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    assert!(
        results
            .iter()
            .any(|r| matches!(r, Err(Error::SandboxNotFound { .. })))
    );
}

#[tokio::test]
async fn a_kill_that_the_node_refuses_can_be_tried_again() {
    let world = world().await;
    let id = world.make().await;
    world
        .node
        .fail_next(NodeError::io("disk", std::io::Error::other("gone")));
    assert!(world.control.kill(&world.tenant, &id).await.is_err());
    assert!(world.control.get(&world.tenant, &id).await.is_ok());
    world.control.kill(&world.tenant, &id).await.unwrap();
}

#[tokio::test]
async fn what_ends_on_its_own_is_recorded_with_its_reason() {
    let world = world().await;
    let id = world.make().await;
    world.node.end(&id, EndReason::Died, "envd: signal 9");
    eventually("the end is written", async || {
        world.row(&id).await.end.is_some()
    })
    .await;
    let error = world
        .control
        .get(&world.tenant, &id)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("died: envd: signal 9"), "{error}");
}

#[tokio::test]
async fn an_end_without_an_event_is_found_by_looking() {
    let world = world().await;
    let id = world.make().await;
    world.node.forget(&id);
    in_time("the end is written", async || {
        world.row(&id).await.end.is_some()
    })
    .await;
    assert_eq!(world.ends_heard(&id).await, ["died"]);
}

#[tokio::test]
async fn an_end_whose_event_was_missed_keeps_its_reason() {
    let world = world().await;
    let id = world.make().await;
    world.node.end_unheard(&id, EndReason::Expired, "its time");
    in_time("the end is written", async || {
        world.row(&id).await.end.is_some()
    })
    .await;
    let end = world.row(&id).await.end.unwrap();
    assert_eq!(end.reason, EndReason::Expired);
    assert_eq!(world.ends_heard(&id).await, ["expired"]);
}

#[tokio::test]
async fn an_end_that_nobody_asks_for_any_more_is_forgotten() {
    let world = world().await;
    let spec = stray(world.tenant.id.clone());
    world.node.add(spec.clone());
    world.node.end_unheard(&spec.id, EndReason::Died, "");
    world.node.age_ends();
    in_time("the node forgets", async || {
        let heard = world.killed(&spec.id).await;
        assert!(heard.is_empty(), "it had no row: nobody was told of it");
        world.node.ends() == 0
    })
    .await;
}

/// Every such write fails until it is unjammed, as on a disk that is full.
async fn jam(world: &World, write: &str) -> sqlx::SqlitePool {
    let file = world.folder.path().join("soulbox.db");
    let pool = sqlx::SqlitePool::connect(file.to_str().unwrap())
        .await
        .unwrap();
    let sql = format!("CREATE TRIGGER jam BEFORE {write} BEGIN SELECT RAISE(ABORT, 'full'); END");
    sqlx::query(sqlx::AssertSqlSafe(sql))
        .execute(&pool)
        .await
        .unwrap();
    pool
}

async fn unjam(pool: sqlx::SqlitePool) {
    sqlx::query("DROP TRIGGER jam")
        .execute(&pool)
        .await
        .unwrap();
    pool.close().await;
}

#[tokio::test]
async fn events_that_cannot_be_written_are_written_later_and_an_end_is_kept_until_then() {
    let world = world().await;
    let id = world.make().await;
    assert_eq!(world.kinds_heard(&id).await, ["created"]);
    let jammed = jam(&world, "INSERT ON events").await;
    world.node.die_when_asked(&id, Moment::Before);
    assert_eq!(world.node.unrecorded_ends().await.len(), 1);
    eventually("the end is written", async || {
        world.row(&id).await.end.is_some()
    })
    .await;
    assert_eq!(world.kinds_heard(&id).await, ["created"]);
    assert_eq!(world.node.ends(), 1);

    unjam(jammed).await;
    eventually("the event is written", async || {
        world.kinds_heard(&id).await == ["created", "killed"]
    })
    .await;
    world.node.age_ends();
    in_time("the node forgets", async || {
        assert_eq!(world.kinds_heard(&id).await, ["created", "killed"]);
        world.node.ends() == 0
    })
    .await;
}

#[tokio::test]
async fn a_kill_that_cannot_be_recorded_has_still_happened_and_is_recorded_later() {
    let world = world().await;
    let id = world.make().await;
    let spec = world.node.get(&id).unwrap().spec;
    let jammed = jam(&world, "UPDATE ON sandboxes").await;
    world.control.kill(&world.tenant, &id).await.unwrap();
    assert!(world.control.get(&world.tenant, &id).await.is_err());
    assert!(world.row(&id).await.end.is_none());

    unjam(jammed).await;
    // What the real node keeps of it.
    world.node.add(SandboxSpec::clone(&spec));
    world.node.end_unheard(&id, EndReason::Killed, "");
    world.node.age_ends();
    in_time("the end is written", async || {
        world.row(&id).await.end.is_some()
    })
    .await;
    let end = world.row(&id).await.end.unwrap();
    assert_eq!(end.reason, EndReason::Killed);
    assert_eq!(world.ends_heard(&id).await, ["killed"]);
}

/// The looks are seconds apart: the clock is moved instead of waited for.
async fn in_time(what: &str, mut check: impl AsyncFnMut() -> bool) {
    for _ in 0..1000 {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(2)).await;
        tokio::time::resume();
        if check().await {
            return;
        }
    }
    panic!("{what}: not in time");
}
