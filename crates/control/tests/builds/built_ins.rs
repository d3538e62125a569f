//! Templates that exist before anybody built them.

use super::*;

fn agent(version: &str) -> BuiltIn {
    BuiltIn {
        name: "agent".into(),
        version: version.into(),
        limits: Limits::default(),
        base: Base::Debian {
            packages: vec!["git".into()],
        },
        steps: vec![run("true")],
        lanes: Vec::new(),
        start: None,
        ready: None,
        seconds: vec![30, 60, 10],
    }
}

#[tokio::test]
async fn a_built_in_is_built_when_it_is_first_wanted() {
    let mut world = world_with(|builds| builds.builtins = vec![agent("1")]).await;
    let exists = world.control.resolve_template(&world.tenant, "agent");
    let shown = exists.unwrap();
    assert!(shown.info.public && shown.namespace.is_none());
    assert_eq!(shown.status, BuildStatus::Waiting);
    let made = world.create("agent").await.unwrap();
    let first = world.build_of(&made.id).unwrap();
    let made = world.create("agent").await.unwrap();
    assert_eq!(world.build_of(&made.id).as_ref(), Some(&first));
    assert_eq!(world.builder.requests().len(), 1);
    let again = world.control.build_builtin("agent").await.unwrap();
    assert_eq!(again.row.id, first);
    let gone = world
        .control
        .delete_template(&world.tenant, &reference("agent"))
        .await;
    assert!(matches!(gone, Err(Error::TemplateForbidden(_))));

    world.config.builds.as_mut().unwrap().builtins = vec![agent("2")];
    world.restart().await;
    // The old form serves while the new one is being built.
    let made = world.create("agent").await.unwrap();
    assert_eq!(world.build_of(&made.id).as_ref(), Some(&first));
    eventually("it is built anew", async || {
        let made = world.create("agent").await.unwrap();
        let build = world.build_of(&made.id).unwrap();
        world.control.kill(&world.tenant, &made.id).await.unwrap();
        build != first
    })
    .await;
    assert_eq!(world.builder.requests().len(), 2);
}

#[tokio::test]
async fn a_built_in_that_takes_long_is_told_to_be_on_its_way_and_survives_a_restart() {
    let mut world = world_with(|builds| {
        builds.builtins = vec![agent("1")];
        builds.patience = Some(Duration::from_millis(1));
    })
    .await;
    let builder = Arc::clone(&world.builder);
    let held = builder.gate.write().await;
    eventually("its last line is told", async || {
        let wait = world.create("agent").await;
        let Err(error @ Error::TemplateBuilding { .. }) = wait else {
            panic!("{wait:?}");
        };
        let text = error.to_string();
        assert!(text.contains("`soulbox template build --builtin agent`"));
        text.contains("step 1 of 3, about 0 % done, about 100 s left ([base] FROM Debian")
    })
    .await;
    world.config.builds.as_mut().unwrap().patience = None;
    world.restart().await;
    drop(held);
    world.create("agent").await.unwrap();
    let builds: std::collections::HashSet<_> = world
        .builder
        .requests()
        .into_iter()
        .map(|request| request.build)
        .collect();
    assert_eq!(builds.len(), 1);
}

#[tokio::test]
async fn a_template_on_a_built_in_that_is_not_there_yet_waits_for_it() {
    let mut world = world_with(|builds| builds.builtins = vec![agent("1")]).await;
    let builder = Arc::clone(&world.builder);
    let held = builder.gate.write().await;
    let (cancelled, asked) = (world.ask("cancelled").await, world.ask("app").await);
    for asked in [&cancelled, &asked] {
        let base = BaseDefinition::Template("agent".into());
        world.start(asked, request(base, vec![])).await;
    }
    world
        .control
        .cancel_build(&world.tenant, "cancelled", &cancelled.build)
        .await
        .unwrap();
    world.restart().await;
    drop(held);
    let ended = world.ended(&asked).await;
    assert_eq!(ended.status, BuildStatus::Ready, "{:?}", ended.reason);
    assert_eq!(world.row(&cancelled).status, BuildStatus::Error);
}

#[tokio::test]
async fn a_built_in_that_cannot_be_built_says_why() {
    let mut broken = agent("1");
    broken.steps = vec![run("fail")];
    let world = world_with(|builds| builds.builtins = vec![broken]).await;
    // The next one tries again, those after it not for a while.
    for tried in [1, 2, 2] {
        let failed = world.create("agent").await;
        let Err(error @ Error::TemplateBuildFailed { .. }) = failed else {
            panic!("{failed:?}");
        };
        assert!(error.to_string().contains("exit status 1"), "{error}");
        assert_eq!(world.builder.requests().len(), tried);
    }
}
