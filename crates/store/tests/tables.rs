//! Tenants, keys, sandboxes, templates and snapshots, in both databases.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod support;

use soulbox_store::{
    BuildReason, BuildRow, BuildStatus, KeyRow, Started, TemplateRow, TemplateUse,
};
use soulbox_types::{EndReason, TemplateId, UnixMillis};
use support::{
    Database,
    rows::{
        build, end, id, key, record, sandbox, snapshot, snapshot_build, snapshot_tag, template,
        template_tag, tenant,
    },
};

support::on_both![
    a_second_start_finds_what_the_first_one_wrote,
    a_taken_slug_writes_neither_tenant_nor_key,
    keys_can_be_renamed_touched_and_deleted,
    only_the_first_end_of_a_sandbox_counts,
    pruned_sandboxes_still_count_as_use_of_their_template,
    a_repeated_request_writes_nothing_and_gets_the_first_answer,
    an_old_idempotency_key_can_be_used_again,
    a_snapshots_image_is_doomed_until_it_is_a_build_and_after_its_deletion,
    a_build_keeps_its_request_only_while_it_runs,
    a_deleted_template_frees_its_names_and_stays_until_its_builds_are_gone,
];

async fn a_second_start_finds_what_the_first_one_wrote(database: Database) {
    let store = database.open().await;
    store.insert_sandbox(&sandbox("i1", 10)).await.unwrap();
    store.close().await;

    let store = database.connect().await;
    let tenants = [tenant(0, "one"), tenant(1, "two")];
    assert_eq!(store.tenants().await.unwrap(), tenants);
    assert_eq!(store.keys().await.unwrap(), [key(0, "one"), key(1, "two")]);
    assert_eq!(store.live_sandboxes().await.unwrap(), [sandbox("i1", 10)]);
}

async fn a_taken_slug_writes_neither_tenant_nor_key(database: Database) {
    let store = database.open().await;
    assert!(
        !store
            .insert_tenant_with_key(&tenant(0, "one"), &key(0, "k2"))
            .await
            .unwrap()
    );
    assert_eq!(store.keys().await.unwrap().len(), 2);
}

async fn keys_can_be_renamed_touched_and_deleted(database: Database) {
    let store = database.open().await;
    store.delete_key("two").await.unwrap();
    store.rename_key("one", "ci").await.unwrap();
    store.touch_key("one", UnixMillis(99)).await.unwrap();
    let expected = KeyRow {
        name: "ci".into(),
        last_used_at: Some(UnixMillis(99)),
        ..key(0, "one")
    };
    assert_eq!(store.keys().await.unwrap(), [expected]);
    store.delete_key("one").await.unwrap();
    assert_eq!(store.keys().await.unwrap(), []);
}

async fn only_the_first_end_of_a_sandbox_counts(database: Database) {
    let store = database.open().await;
    store.insert_sandbox(&sandbox("i1", 10)).await.unwrap();
    store
        .end_sandbox(&id("i1"), &end(20, EndReason::Expired))
        .await
        .unwrap();
    store
        .end_sandbox(&id("i1"), &end(30, EndReason::Killed))
        .await
        .unwrap();
    let row = store.sandbox(&id("i1")).await.unwrap().unwrap();
    assert_eq!(row.end, Some(end(20, EndReason::Expired)));
    assert_eq!(store.live_sandboxes().await.unwrap(), []);
    assert_eq!(store.sandbox(&id("i2")).await.unwrap(), None);
}

async fn pruned_sandboxes_still_count_as_use_of_their_template(database: Database) {
    let store = database.open().await;
    for (name, created) in [("i1", 10), ("i2", 50), ("i3", 30)] {
        store.insert_sandbox(&sandbox(name, created)).await.unwrap();
    }
    store
        .end_sandbox(&id("i1"), &end(60, EndReason::Killed))
        .await
        .unwrap();
    store
        .end_sandbox(&id("i2"), &end(70, EndReason::Killed))
        .await
        .unwrap();
    let before = store.template_use().await.unwrap();
    assert_eq!(store.prune_sandboxes(UnixMillis(65)).await.unwrap(), 1);
    assert_eq!(store.prune_sandboxes(UnixMillis(75)).await.unwrap(), 1);
    assert_eq!(store.template_use().await.unwrap(), before);
    let expected = TemplateUse {
        template: "base".parse().unwrap(),
        spawned: 3,
        last_spawned_at: UnixMillis(50),
    };
    assert_eq!(before, [expected]);
    assert_eq!(store.live_sandboxes().await.unwrap(), [sandbox("i3", 30)]);
}

async fn a_repeated_request_writes_nothing_and_gets_the_first_answer(database: Database) {
    let store = database.open().await;
    let start = |name, at| {
        let (store, row) = (store.clone(), sandbox(name, at));
        async move {
            store
                .insert_sandbox_once(&row, &record(), UnixMillis(5))
                .await
                .unwrap()
        }
    };
    assert_eq!(start("i1", 10).await, Started::First);
    let Started::Repeated(row) = start("i2", 11).await else {
        panic!("first again")
    };
    assert_eq!((row.sandbox, row.response), (id("i1"), None));
    assert_eq!(store.open_idempotency().await.unwrap(), [id("i1")]);

    store.complete_idempotency(&id("i1"), "{}").await.unwrap();
    let found = store
        .find_idempotency(&record(), UnixMillis(5))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(found.response.as_deref(), Some("{}"));
    assert_eq!(
        store
            .find_idempotency(&record(), UnixMillis(11))
            .await
            .unwrap(),
        None
    );
    let Started::Repeated(row) = start("i2", 12).await else {
        panic!("first again")
    };
    assert_eq!((row.sandbox, row.response), (id("i1"), Some("{}".into())));
    assert_eq!(store.live_sandboxes().await.unwrap().len(), 1);

    store.forget_idempotency(&id("i1")).await.unwrap();
    assert_eq!(start("i3", 13).await, Started::First);
}

async fn an_old_idempotency_key_can_be_used_again(database: Database) {
    let store = database.open().await;
    let first = store
        .insert_sandbox_once(&sandbox("i1", 10), &record(), UnixMillis(0))
        .await;
    assert_eq!(first.unwrap(), Started::First);
    let again = store
        .insert_sandbox_once(&sandbox("i2", 20), &record(), UnixMillis(11))
        .await;
    assert_eq!(again.unwrap(), Started::First);
    assert_eq!(store.prune_idempotency(UnixMillis(21)).await.unwrap(), 1);
}

async fn a_snapshots_image_is_doomed_until_it_is_a_build_and_after_its_deletion(
    database: Database,
) {
    let store = database.open().await;
    let (image, template) = (TemplateId::random(), TemplateId::random());
    store.doom_image(&image).await.unwrap();
    assert_eq!(
        store.doomed_images().await.unwrap(),
        std::slice::from_ref(&image)
    );
    let snapshot = snapshot(&template, "snap");
    let build = snapshot_build("build-1", &template, &image);
    let tag = |tag: &str| snapshot_tag(&template, tag, "build-1");
    store
        .insert_snapshot_build(&snapshot, &build, &tag("default"))
        .await
        .unwrap();
    assert_eq!(store.doomed_images().await.unwrap(), []);
    assert_eq!(store.snapshots().await.unwrap(), [snapshot]);
    assert_eq!(store.snapshot_builds().await.unwrap(), [build]);
    store.tag_snapshot(&[tag("v1"), tag("v2")]).await.unwrap();
    store
        .untag_snapshot(&template, &["v1".to_owned()])
        .await
        .unwrap();
    let tags = store.snapshot_tags().await.unwrap();
    assert_eq!(tags, [tag("default"), tag("v2")]);
    store.delete_snapshot(&template).await.unwrap();
    assert_eq!(store.snapshots().await.unwrap(), []);
    assert_eq!(store.snapshot_builds().await.unwrap(), []);
    assert_eq!(store.snapshot_tags().await.unwrap(), []);
    assert_eq!(
        store.doomed_images().await.unwrap(),
        std::slice::from_ref(&image)
    );
    store.forget_image(&image).await.unwrap();
    assert_eq!(store.doomed_images().await.unwrap(), []);
}

async fn a_build_keeps_its_request_only_while_it_runs(database: Database) {
    let store = database.open().await;
    let (template, first) = (template(), build("b1", 4));
    store.insert_build(&template, &first).await.unwrap();
    store
        .insert_build(&template, &build("b2", 5))
        .await
        .unwrap();
    assert_eq!(store.builds().await.unwrap()[0], first);
    assert!(
        store
            .start_build("b1", "sealed", UnixMillis(6))
            .await
            .unwrap()
    );
    assert!(
        !store
            .start_build("b1", "again", UnixMillis(7))
            .await
            .unwrap()
    );
    let request = store.build_request("b1").await.unwrap();
    assert_eq!(request.as_deref(), Some("sealed"));
    let tag = template_tag("v1", "b1", 4);
    store
        .finish_build("b1", None, std::slice::from_ref(&tag), UnixMillis(8))
        .await
        .unwrap();
    let reason = BuildReason {
        step: "2".into(),
        message: "no".into(),
    };
    store
        .finish_build("b2", Some(&reason), &[], UnixMillis(9))
        .await
        .unwrap();

    let store = database.open().await;
    assert_eq!(store.build_request("b1").await.unwrap(), None);
    let builds = store.builds().await.unwrap();
    assert_eq!(builds[0].status, BuildStatus::Ready);
    assert_eq!(builds[0].started_at, Some(UnixMillis(6)));
    assert_eq!(builds[1].status, BuildStatus::Error);
    assert_eq!(builds[1].reason, Some(reason));
    assert_eq!(store.template_tags().await.unwrap(), [tag]);
}

async fn a_deleted_template_frees_its_names_and_stays_until_its_builds_are_gone(
    database: Database,
) {
    let store = database.open().await;
    let template = template();
    store
        .insert_build(&template, &build("b1", 4))
        .await
        .unwrap();
    store
        .tag_template(&[template_tag("v1", "b1", 4)])
        .await
        .unwrap();
    store
        .publish_template(&template.id, true, Some("mine"))
        .await
        .unwrap();
    let row = store.templates().await.unwrap().remove(0);
    assert!(row.public && row.global_name.as_deref() == Some("mine"));
    store
        .delete_template(&template.id, UnixMillis(5))
        .await
        .unwrap();
    assert!(store.template_tags().await.unwrap().is_empty());
    let again = TemplateRow {
        id: "another".parse().unwrap(),
        global_name: Some("mine".into()),
        ..template.clone()
    };
    let build = BuildRow {
        template: again.id.clone(),
        ..build("b2", 6)
    };
    store.insert_build(&again, &build).await.unwrap();
    store.mark_build_removed("b1").await.unwrap();
    assert!(store.builds().await.unwrap()[0].removed);
    store.forget_build("b1").await.unwrap();
    store.forget_template(&template.id).await.unwrap();
    store
        .untag_template(&again.id, &["v1".into()])
        .await
        .unwrap();
    assert_eq!(store.templates().await.unwrap(), [again]);
}
