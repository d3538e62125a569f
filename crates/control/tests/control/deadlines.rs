//! Deadlines, and how they move.

use super::*;

#[tokio::test]
async fn a_sandbox_past_its_deadline_is_not_shown() {
    let world = world().await;
    let id = world.make().await;
    world.node.set_deadline(&id, UnixMillis(1)).await.unwrap();
    assert!(world.control.list(&world.tenant).is_empty());
    assert!(world.control.get(&world.tenant, &id).await.is_err());
}

#[tokio::test]
async fn connect_only_ever_extends() {
    let world = world().await;
    let id = world.make().await;
    let before = world.deadline(&id);
    world
        .control
        .connect(&world.tenant, &id, 10, PauseMode::Memory)
        .await
        .unwrap();
    assert_eq!(world.deadline(&id), before);
    world
        .control
        .connect(&world.tenant, &id, -1, PauseMode::Memory)
        .await
        .unwrap();
    assert_eq!(world.deadline(&id), before);
    world
        .control
        .connect(&world.tenant, &id, 600, PauseMode::Memory)
        .await
        .unwrap();
    assert!(world.deadline(&id) > before);
    let too_long = world
        .control
        .connect(
            &world.tenant,
            &"nope".parse().unwrap(),
            86_401,
            PauseMode::Memory,
        )
        .await;
    assert!(
        matches!(too_long, Err(Error::Invalid(_))),
        "checked before existence"
    );
}

#[tokio::test]
async fn set_timeout_moves_the_end_both_ways_but_not_past_the_longest_life() {
    let world = world().await;
    let id = world.make().await;
    let before = world.deadline(&id);
    world
        .control
        .set_timeout(&world.tenant, &id, 10)
        .await
        .unwrap();
    assert!(world.deadline(&id) < before);
    world
        .control
        .set_timeout(&world.tenant, &id, i64::MAX)
        .await
        .unwrap();
    let created = world.node.get(&id).unwrap().spec.created_at;
    assert_eq!(world.deadline(&id), created.plus(DAY));
    world
        .node
        .change(&id, |spec| spec.created_at = UnixMillis(0));
    let exceeded = world
        .control
        .set_timeout(&world.tenant, &id, 10)
        .await
        .unwrap_err();
    assert_eq!(exceeded.to_string(), "Max instance length exceeded");
}

#[tokio::test]
async fn a_timeout_of_zero_or_less_ends_it_at_once() {
    let world = world().await;
    for seconds in [0, -5, i64::MIN] {
        let id = world.make().await;
        world
            .control
            .set_timeout(&world.tenant, &id, seconds)
            .await
            .unwrap();
        assert!(world.node.get(&id).is_none());
        assert_eq!(world.row(&id).await.end.unwrap().reason, EndReason::Expired);
    }
}

#[tokio::test]
async fn a_refresh_extends_by_at_least_15_seconds_and_at_most_an_hour() {
    let world = world().await;
    let id = world
        .create(CreateRequest {
            timeout: 1,
            ..request()
        })
        .await
        .unwrap()
        .id;
    let now = UnixMillis::now();
    world.control.refresh(&world.tenant, &id, 0).await.unwrap();
    assert!(world.deadline(&id) >= now.plus(Duration::from_secs(15)));
    for bad in [-1, 3601] {
        assert!(
            world
                .control
                .refresh(&world.tenant, &id, bad)
                .await
                .is_err()
        );
    }
}
