//! The tables, in a real file.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::{collections::BTreeMap, os::unix::fs::PermissionsExt, path::Path};

use soulbox_store::{
    BuildReason, BuildRow, BuildStatus, EndRow, IdempotencyRecord, KeyRow, SandboxRow,
    SnapshotBuildRow, SnapshotRow, SnapshotTagRow, Started, Store, TemplateRow, TemplateTagRow,
    TemplateUse, TenantRow,
};
use soulbox_types::{EndReason, Limits, SandboxId, TemplateId, TenantId, UnixMillis};

const TENANT: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

fn tenant_id() -> TenantId {
    TENANT.parse().unwrap()
}

fn tenant() -> TenantRow {
    TenantRow {
        id: tenant_id(),
        slug: "default".into(),
        name: "default".into(),
        created_at: UnixMillis(1),
    }
}

fn key(id: &str) -> KeyRow {
    KeyRow {
        id: id.into(),
        tenant: tenant_id(),
        name: "first".into(),
        hash: format!("$sha256${id}"),
        mask_prefix: "ab".into(),
        mask_suffix: "cdef".into(),
        value_length: 40,
        created_at: UnixMillis(2),
        last_used_at: None,
    }
}

fn sandbox(id: &str, created_at: u64) -> SandboxRow {
    SandboxRow {
        id: id.parse().unwrap(),
        tenant: tenant_id(),
        template: "base".parse().unwrap(),
        metadata: BTreeMap::from([("ключ 🗝".to_owned(), "v\0".to_owned())]),
        created_at: UnixMillis(created_at),
        end: None,
    }
}

fn end(at: u64, reason: EndReason) -> EndRow {
    EndRow {
        at: UnixMillis(at),
        reason,
        detail: String::new(),
    }
}

fn id(text: &str) -> SandboxId {
    text.parse().unwrap()
}

async fn open(folder: &Path) -> Store {
    let store = Store::open(&folder.join("soulbox.db")).await.unwrap();
    store
        .insert_tenant_with_key(&tenant(), &key("k1"))
        .await
        .unwrap();
    store
}

/// Whoever else opens the database (`soulbox key`, a backup) and finds no lock takes itself for the
/// last, and removes the log that this process still writes to. A process loses all its locks on a
/// file when it closes any descriptor of it.
#[tokio::test]
async fn other_processes_see_that_the_database_is_in_use() {
    use std::os::unix::fs::MetadataExt;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("soulbox.db");
    let store = Store::open(&path).await.unwrap();
    let inode = std::fs::metadata(&path).unwrap().ino().to_string();
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    let ours = std::process::id().to_string();
    let held = locks.lines().any(|line| {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        fields.contains(&"POSIX")
            && fields.contains(&ours.as_str())
            && fields
                .iter()
                .any(|field| field.ends_with(&format!(":{inode}")))
    });
    assert!(held, "{locks}");
    drop(store);
}

#[tokio::test]
async fn a_second_start_finds_what_the_first_one_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    store.insert_sandbox(&sandbox("i1", 10)).await.unwrap();
    store.close().await;

    let store = Store::open(&folder.path().join("soulbox.db"))
        .await
        .unwrap();
    assert_eq!(store.tenants().await.unwrap(), [tenant()]);
    assert_eq!(store.keys().await.unwrap(), [key("k1")]);
    assert_eq!(store.live_sandboxes().await.unwrap(), [sandbox("i1", 10)]);
}

#[tokio::test]
async fn the_database_is_readable_by_its_owner_only() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    for name in ["soulbox.db", "soulbox.db-wal"] {
        let mode = std::fs::metadata(folder.path().join(name))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    store.close().await;
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("soulbox.db");
    std::fs::write(
        &path,
        "not a database, but long enough to look at: ".repeat(50),
    )
    .unwrap();
    assert!(Store::open(&path).await.is_err());
}

#[tokio::test]
async fn a_taken_slug_writes_neither_tenant_nor_key() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    assert!(
        !store
            .insert_tenant_with_key(&tenant(), &key("k2"))
            .await
            .unwrap()
    );
    assert_eq!(store.keys().await.unwrap().len(), 1);
}

#[tokio::test]
async fn keys_can_be_renamed_touched_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    store.rename_key("k1", "ci").await.unwrap();
    store.touch_key("k1", UnixMillis(99)).await.unwrap();
    let expected = KeyRow {
        name: "ci".into(),
        last_used_at: Some(UnixMillis(99)),
        ..key("k1")
    };
    assert_eq!(store.keys().await.unwrap(), [expected]);
    store.delete_key("k1").await.unwrap();
    assert_eq!(store.keys().await.unwrap(), []);
}

#[tokio::test]
async fn only_the_first_end_of_a_sandbox_counts() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
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

#[tokio::test]
async fn pruned_sandboxes_still_count_as_use_of_their_template() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
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

fn record() -> IdempotencyRecord {
    IdempotencyRecord {
        tenant: tenant_id(),
        key: "k".into(),
        fingerprint: "f".into(),
    }
}

#[tokio::test]
async fn a_repeated_request_writes_nothing_and_gets_the_first_answer() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
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

#[tokio::test]
async fn an_old_idempotency_key_can_be_used_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn of_many_requests_with_one_key_exactly_one_is_first() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let tasks = (0..16).map(|n| {
        let store = store.clone();
        tokio::spawn(async move {
            let row = sandbox(&format!("i{n}"), 10);
            store
                .insert_sandbox_once(&row, &record(), UnixMillis(0))
                .await
                .unwrap()
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let mut first = 0;
    for task in tasks {
        first += usize::from(task.await.unwrap() == Started::First);
    }
    assert_eq!(first, 1);
    assert_eq!(store.live_sandboxes().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_snapshots_image_is_doomed_until_it_is_a_build_and_after_its_deletion() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let (image, template) = (TemplateId::random(), TemplateId::random());
    let at = UnixMillis(5);
    store.doom_image(&image).await.unwrap();
    assert_eq!(
        store.doomed_images().await.unwrap(),
        std::slice::from_ref(&image)
    );
    let snapshot = SnapshotRow {
        template: template.clone(),
        tenant: tenant_id(),
        name: Some("snap".into()),
        created_at: at,
    };
    let build = SnapshotBuildRow {
        id: "build-1".into(),
        template: template.clone(),
        image: image.clone(),
        source: SandboxId::random(),
        base: TemplateId::random(),
        base_build: None,
        limits: Limits::default(),
        created_at: at,
    };
    let tag = |tag: &str| SnapshotTagRow {
        template: template.clone(),
        tag: tag.into(),
        build: "build-1".into(),
        assigned_at: at,
    };
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

fn template_row() -> TemplateRow {
    TemplateRow {
        id: "mytemplate".parse().unwrap(),
        tenant: tenant_id(),
        name: Some("mine".into()),
        global_name: None,
        public: false,
        created_at: UnixMillis(3),
        deleted_at: None,
    }
}

fn build_row(id: &str, created_at: u64) -> BuildRow {
    BuildRow {
        id: id.into(),
        template: "mytemplate".parse().unwrap(),
        status: BuildStatus::Waiting,
        tags: vec!["default".into(), "v1".into()],
        limits: Limits::default(),
        version: Some("7".into()),
        reason: None,
        created_at: UnixMillis(created_at),
        started_at: None,
        finished_at: None,
        removed: false,
    }
}

fn template_tag(build: &str, at: u64) -> TemplateTagRow {
    TemplateTagRow {
        template: "mytemplate".parse().unwrap(),
        tag: "v1".into(),
        build: build.into(),
        assigned_at: UnixMillis(at),
    }
}

#[tokio::test]
async fn a_build_keeps_its_request_only_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let (template, build) = (template_row(), build_row("b1", 4));
    store.insert_build(&template, &build).await.unwrap();
    store
        .insert_build(&template, &build_row("b2", 5))
        .await
        .unwrap();
    assert_eq!(store.builds().await.unwrap()[0], build);
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
    let tag = template_tag("b1", 4);
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

    let store = open(folder.path()).await;
    assert_eq!(store.build_request("b1").await.unwrap(), None);
    let builds = store.builds().await.unwrap();
    assert_eq!(builds[0].status, BuildStatus::Ready);
    assert_eq!(builds[0].started_at, Some(UnixMillis(6)));
    assert_eq!(builds[1].status, BuildStatus::Error);
    assert_eq!(builds[1].reason, Some(reason));
    assert_eq!(store.template_tags().await.unwrap(), [tag]);
}

#[tokio::test]
async fn a_deleted_template_frees_its_names_and_stays_until_its_builds_are_gone() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let template = template_row();
    store
        .insert_build(&template, &build_row("b1", 4))
        .await
        .unwrap();
    store.tag_template(&[template_tag("b1", 4)]).await.unwrap();
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
        ..build_row("b2", 6)
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
