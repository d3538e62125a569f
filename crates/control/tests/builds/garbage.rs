//! What is kept, and what goes.

use super::*;

#[tokio::test]
async fn a_snapshot_remembers_the_build_and_keeps_it() {
    let world = world().await;
    let asked = world.build("app").await;
    let made = world.create("app").await.unwrap();
    let (control, tenant) = (&world.control, &world.tenant);
    let taken = control
        .create_snapshot(tenant, &made.id, Some("snap"))
        .await
        .unwrap();
    let child = world.create(&taken.id()).await.unwrap();
    assert_eq!(world.build_of(&child.id), Some(asked.build.clone()));
    assert_eq!(child.template, asked.template);

    let used = control.delete_template(tenant, &reference("app")).await;
    let Err(Error::TemplateInUse { users, .. }) = used else {
        panic!("{used:?}");
    };
    assert!(users.ends_with("and 1 more"), "{users}");
    for id in [&made.id, &child.id] {
        control.kill(tenant, id).await.unwrap();
    }
    control
        .delete_template(tenant, &reference("app"))
        .await
        .unwrap();
    eventually("garbage is collected", async || {
        world.builder.kept().last() == Some(&vec![asked.build.clone()])
    })
    .await;
    let child = world.create("snap").await.unwrap();
    assert_eq!(world.build_of(&child.id), Some(asked.build));
}

#[tokio::test]
async fn what_nothing_needs_goes_and_a_name_is_free_again() {
    let world = world().await;
    let old = world.build("app").await;
    eventually("time passes", async || {
        UnixMillis::now() > world.row(&old).created_at
    })
    .await;
    let new = world.build("app").await;
    let (control, tenant) = (&world.control, &world.tenant);
    let other = world.build("other").await;
    control
        .delete_template(tenant, &reference("other"))
        .await
        .unwrap();
    eventually("builds are removed", async || {
        let templates = &world.builder.templates;
        templates.build(&old.build).is_none() && templates.build(&other.build).is_none()
    })
    .await;
    assert!(world.builder.templates.build(&new.build).is_some());
    let again = control.delete_template(tenant, &reference("other")).await;
    assert!(matches!(again, Err(Error::TemplateNotFound(_))));
    let fresh = world.build("other").await;
    assert_ne!(fresh.template, other.template);
}

#[tokio::test]
async fn no_build_goes_while_it_is_not_known_what_something_stands_on() {
    let world = world().await;
    let asked = world.build("app").await;
    world.node.keeps_unknown.store(true, Ordering::Relaxed);
    let app = reference("app");
    let deleted = world.control.delete_template(&world.tenant, &app).await;
    deleted.unwrap();
    // What it does in the background is done then.
    world.control.drain(Duration::from_secs(20)).await;
    assert!(world.builder.templates.build(&asked.build).is_some());
}

#[tokio::test]
async fn deleting_a_template_cancels_its_builds() {
    let world = world().await;
    let _held = world.builder.gate.write().await;
    let asked = world.ask("app").await;
    world.start(&asked, request(image(), vec![])).await;
    world
        .control
        .delete_template(&world.tenant, &reference("app"))
        .await
        .unwrap();
    eventually("nothing is left", async || {
        let store = Store::open(&world.folder.path().join("soulbox.db"))
            .await
            .unwrap();
        let empty = store.templates().await.unwrap().is_empty();
        store.close().await;
        empty
    })
    .await;
}
