//! From a request to a template, and why not.

use super::*;

#[tokio::test]
async fn a_build_becomes_a_template_that_sandboxes_are_made_from() {
    let world = world().await;
    let asked = world
        .control
        .request_build(
            &world.tenant,
            BuildRequest {
                name: "My-App:v1".into(),
                tags: vec!["v2".into()],
                resources: Resources {
                    cpu_count: Some(1),
                    memory_mib: Some(256),
                    ..Resources::default()
                },
            },
        )
        .await
        .unwrap();
    assert_eq!((asked.name.as_str(), asked.public), ("my-app", false));
    assert_eq!(asked.tags, ["v1", "v2"]);
    assert_eq!(world.row(&asked).status, BuildStatus::Waiting);
    let early = world.create("my-app:v1").await.unwrap_err();
    assert!(
        early
            .to_string()
            .starts_with("no build of template 'my-app' has succeeded yet"),
        "{early}"
    );
    world
        .start(&asked, request(image(), vec![run("true")]))
        .await;
    assert_eq!(world.ended(&asked).await.status, BuildStatus::Ready);
    assert_eq!(
        world.log(&asked).await,
        ["[base] FROM debian None", "Run true"]
    );

    for name in ["my-app:v1", "default/my-app:v2", asked.template.as_str()] {
        let made = world.create(name).await;
        if name == asked.template.as_str() {
            // No tag means `default`, which nobody assigned.
            assert!(matches!(made, Err(Error::TagNotFound { .. })));
            continue;
        }
        let made = made.unwrap();
        assert_eq!(made.template, asked.template);
        assert_eq!(made.alias.as_deref(), Some("my-app"));
        let spec = world.node.get(&made.id).unwrap().spec;
        assert_eq!(spec.build.as_ref(), Some(&asked.build));
        assert_eq!(
            (spec.limits.cpu_millis, spec.limits.memory_mib),
            (1000, 256)
        );
    }
    let listed = world.control.templates(&world.tenant);
    let listed = listed.iter().find(|t| t.info.id == asked.template).unwrap();
    assert_eq!(listed.spawn_count, 2);
    assert_eq!(listed.names, ["default/my-app"]);
    let twice = world
        .control
        .start_build(
            &world.tenant,
            asked.template.as_str(),
            &asked.build,
            request(image(), vec![]),
        )
        .await;
    assert!(twice.unwrap_err().to_string().contains("finished already"));
}

#[tokio::test]
async fn a_failure_says_at_which_step_and_leaves_the_tag_where_it_was() {
    let world = world().await;
    let good = world.build("app").await;
    let bad = world.ask("app").await;
    assert_eq!(bad.template, good.template);
    let steps = vec![run("true"), run("fail"), run("true")];
    world.start(&bad, request(image(), steps)).await;
    let ended = world.ended(&bad).await;
    let reason = ended.reason.unwrap();
    assert_eq!(ended.status, BuildStatus::Error);
    assert_eq!(
        (reason.step.as_str(), reason.message.as_str()),
        ("2", "failed to run command 'fail': exit status 1")
    );
    let made = world.create("app").await.unwrap();
    assert_eq!(world.build_of(&made.id), Some(good.build));

    let panics = world.ask("app").await;
    world
        .start(&panics, request(image(), vec![run("panic")]))
        .await;
    let ended = world.ended(&panics).await;
    let reason = ended.reason.unwrap();
    assert_eq!(reason.step, "finalize");
    assert!(reason.message.contains("inside the server"));
}

#[tokio::test]
async fn a_template_stands_on_another_and_an_unknown_one_fails_at_the_base() {
    let world = world().await;
    let below = world.ask("below").await;
    let env = Step {
        kind: StepKind::Env,
        args: vec!["A".into(), "b".into()],
        ..run("")
    };
    let base = BaseDefinition::Template("base".into());
    world.start(&below, request(base, vec![env])).await;
    world.ended(&below).await;
    let above = world.ask("above").await;
    let base = BaseDefinition::Template("below".into());
    world.start(&above, request(base, vec![])).await;
    assert_eq!(world.ended(&above).await.status, BuildStatus::Ready);
    let template = world.builder.templates.build(&above.build).unwrap();
    assert_eq!(template.env["A"], "b");
    assert_eq!(template.env["FROM"], "base");

    let lost = world.ask("lost").await;
    let base = BaseDefinition::Template("nowhere".into());
    world.start(&lost, request(base, vec![])).await;
    let reason = world.ended(&lost).await.reason.unwrap();
    assert_eq!(
        (reason.step.as_str(), reason.message.as_str()),
        ("base", "template 'nowhere' not found")
    );
}

#[tokio::test]
async fn tags_move_to_the_build_that_was_asked_for_last() {
    let world = world().await;
    let held = world.builder.gate.write().await;
    let first = world.ask("app:v1").await;
    world.start(&first, request(image(), vec![])).await;
    eventually("time passes", async || {
        UnixMillis::now() > world.row(&first).created_at
    })
    .await;
    let second = world.ask("app:v1").await;
    world.start(&second, request(image(), vec![])).await;
    drop(held);
    world.ended(&first).await;
    world.ended(&second).await;
    let made = world.create("app:v1").await.unwrap();
    assert_eq!(world.build_of(&made.id).as_ref(), Some(&second.build));

    let (control, tenant) = (&world.control, &world.tenant);
    let assigned = control
        .assign_tags(tenant, "app:v1", vec!["stable".into(), "default".into()])
        .await
        .unwrap();
    assert_eq!(assigned, second.build);
    let made = world.create("app").await.unwrap();
    assert_eq!(world.build_of(&made.id), Some(second.build));
    control
        .remove_tags(tenant, &reference("app"), vec!["stable".into()])
        .await
        .unwrap();
    assert!(matches!(
        world.create("app:stable").await,
        Err(Error::TagNotFound { .. })
    ));
}
