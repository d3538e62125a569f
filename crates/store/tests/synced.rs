//! Which writes wait for the disk.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::{
    collections::BTreeMap,
    path::Path,
    time::{Duration, Instant},
};

use soulbox_durable::syncs;
use soulbox_store::{EndRow, KeyRow, SandboxRow, Store, TenantRow};
use soulbox_types::{EndReason, SandboxId, TenantId, UnixMillis};

/// What is counted is the whole process's.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

fn tenant() -> TenantId {
    "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap()
}

fn key(id: &str) -> KeyRow {
    KeyRow {
        id: id.into(),
        tenant: tenant(),
        name: "first".into(),
        hash: format!("$sha256${id}"),
        mask_prefix: "ab".into(),
        mask_suffix: "cdef".into(),
        value_length: 40,
        created_at: UnixMillis(2),
        last_used_at: None,
    }
}

fn sandbox() -> SandboxRow {
    SandboxRow {
        id: SandboxId::random(),
        tenant: tenant(),
        template: "base".parse().unwrap(),
        metadata: BTreeMap::from([("some".to_owned(), "x".repeat(2000))]),
        created_at: UnixMillis(3),
        end: None,
    }
}

async fn open(path: &Path) -> Store {
    let store = Store::open(path).await.unwrap();
    let row = TenantRow {
        id: tenant(),
        slug: "one".into(),
        name: "one".into(),
        tier: None,
        created_at: UnixMillis(1),
    };
    let made = store.insert_tenant_with_key(&row, &key("first")).await;
    assert!(made.unwrap());
    store
}

#[tokio::test]
async fn a_key_is_on_the_disk_and_a_sandbox_is_a_moment_later() {
    let _alone = ALONE.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("soulbox.db")).await;
    for id in ["a", "b", "c"] {
        let before = syncs();
        store.insert_key(&key(id)).await.unwrap();
        assert!(syncs() > before, "a key");
        let before = syncs();
        store.delete_key(id).await.unwrap();
        assert!(syncs() > before, "a revocation");
    }
    // What is written behind may be just then; not each time.
    let mut waited = 0;
    for _ in 0..10 {
        let (row, before) = (sandbox(), syncs());
        store.insert_sandbox(&row).await.unwrap();
        let end = EndRow::now(EndReason::Killed, "");
        store.end_sandbox(&row.id, &end).await.unwrap();
        waited += u32::from(syncs() != before);
    }
    assert!(waited < 10, "creates and ends wait for the disk");
    let before = syncs();
    store.insert_sandbox(&sandbox()).await.unwrap();
    store.settled().await.unwrap();
    assert!(syncs() > before);
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_come_together_share_a_sync_and_are_all_there() {
    let _alone = ALONE.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("soulbox.db")).await;
    let before = syncs();
    let keys = (0..40).map(|number| {
        let (store, key) = (store.clone(), key(&format!("k{number}")));
        tokio::spawn(async move { store.insert_key(&key).await })
    });
    for written in keys.collect::<Vec<_>>() {
        written.await.unwrap().unwrap();
    }
    assert!((1..=41).contains(&(syncs() - before)));
    assert_eq!(store.keys().await.unwrap().len(), 41);
}

#[tokio::test]
async fn the_log_is_written_back_behind_those_who_write() {
    let _alone = ALONE.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("soulbox.db");
    let store = open(&path).await;
    let size = || std::fs::metadata(&path).unwrap().len();
    let before = size();
    let start = Instant::now();
    while size() < before + (100 << 10) {
        assert!(start.elapsed() < Duration::from_mins(1), "{} bytes", size());
        for _ in 0..50 {
            store.insert_sandbox(&sandbox()).await.unwrap();
        }
        store.settled().await.unwrap();
    }
    let rows = store.live_sandboxes().await.unwrap().len();
    store.close().await;
    let again = Store::open(&path).await.unwrap();
    assert_eq!(again.live_sandboxes().await.unwrap().len(), rows);
}
