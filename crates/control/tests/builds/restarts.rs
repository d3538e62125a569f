//! What a restart of the server makes of builds.

use super::*;

#[tokio::test]
async fn builds_go_on_after_a_restart_with_their_credentials() {
    let mut world = world().await;
    world.build("below").await;
    let first = world.ask("app").await;
    let base = BaseDefinition::Image {
        reference: "registry/private".into(),
        credentials: Some(Credentials::Basic {
            username: "me".into(),
            password: Secret::new("open-sesame"),
        }),
    };
    let (second, third) = (world.ask("second").await, world.ask("third").await);
    {
        let builder = Arc::clone(&world.builder);
        let _held = builder.gate.write().await;
        world
            .start(&first, request(base, vec![run("open-sesame")]))
            .await;
        let below = BaseDefinition::Template("below".into());
        world.start(&second, request(below, vec![])).await;
        eventually("two run", async || world.builder.requests().len() == 3).await;
        // Queued only.
        world.start(&third, request(image(), vec![])).await;
        world.restart().await;
    }
    for asked in [&first, &second, &third] {
        let ended = world.ended(asked).await;
        assert_eq!(ended.status, BuildStatus::Ready, "{:?}", ended.reason);
    }
    let requests = world.builder.requests();
    let again = requests.iter().rfind(|r| r.build == first.build).unwrap();
    let Base::Image {
        credentials: Some(Credentials::Basic { password, .. }),
        ..
    } = &again.stages[0].base
    else {
        panic!("{again:?}");
    };
    assert_eq!(password.expose(), "open-sesame");
    let log = world.log(&first).await;
    assert!(log.iter().any(|line| line.contains("restarted")), "{log:?}");
    assert_eq!(log.last().unwrap(), "Run ***");
    for file in ["soulbox.db", "soulbox.db-wal"] {
        let bytes = std::fs::read(world.folder.path().join(file)).unwrap();
        let found = bytes.windows(11).any(|window| window == b"open-sesame");
        assert!(!found, "{file}");
    }
}

#[tokio::test]
async fn a_build_that_cannot_go_on_after_a_restart_ends_with_the_reason() {
    let mut world = world().await;
    let builder = Arc::clone(&world.builder);
    let _held = builder.gate.write().await;
    let asked = world.ask("app").await;
    world.start(&asked, request(image(), vec![])).await;
    world.control.drain(Duration::from_secs(10)).await;
    world.config.seed = Secret::new("ff00");
    world.reopen().await;
    let ended = world.row(&asked);
    assert_eq!(ended.status, BuildStatus::Error);
    let reason = ended.reason.unwrap().message;
    assert!(reason.contains("was the seed file replaced?"), "{reason}");

    let again = world.ask("app").await;
    world.start(&again, request(image(), vec![])).await;
    world.control.drain(Duration::from_secs(10)).await;
    world.config.builds = None;
    world.reopen().await;
    let listed = world.control.templates(&world.tenant);
    let build = listed[0].builds.last().unwrap();
    assert_eq!(build.id, again.build);
    assert_eq!(build.status, BuildStatus::Error);
}

#[tokio::test]
async fn what_is_ready_stays_ready_after_a_restart() {
    let mut world = world().await;
    let asked = world.build("app:v1").await;
    world.restart().await;
    let made = world.create("app:v1").await.unwrap();
    assert_eq!(world.build_of(&made.id), Some(asked.build.clone()));
    world.builder.templates.forget(&asked.build).unwrap();
    world.restart().await;
    assert!(matches!(
        world.create("app:v1").await,
        Err(Error::TagNotFound { .. })
    ));
}
