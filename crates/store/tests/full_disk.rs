//! A disk that is full for a while: writes fail, and afterwards everything is as before.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::{collections::BTreeMap, fs, io::Write, path::Path, process::Command};

use serde_json::json;
use soulbox_store::{EventFilter, EventRow, KeyRow, SandboxRow, Store, TenantRow};
use soulbox_types::{SandboxId, TenantId, UnixMillis};
use tempfile::TempDir;

/// A disk of its own, gone when dropped.
struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    /// `None` where mounting is not allowed.
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs"])
            .arg(folder.path())
            .status();
        mounted
            .is_ok_and(|status| status.success())
            .then_some(Self { folder })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn fill(&self) {
        let mut file = fs::File::create(self.path().join("filler")).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
    }

    fn free(&self) {
        fs::remove_file(self.path().join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        Command::new("umount")
            .arg("--lazy")
            .arg(self.path())
            .status()
            .unwrap();
    }
}

fn tenant() -> TenantId {
    "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap()
}

async fn open(disk: &SmallDisk) -> Store {
    Store::open(&disk.path().join("soulbox.db")).await.unwrap()
}

async fn settle_in(store: &Store) {
    let row = TenantRow {
        id: tenant(),
        slug: "one".into(),
        name: "one".into(),
        tier: None,
        created_at: UnixMillis(1),
    };
    let key = KeyRow {
        id: "one".into(),
        tenant: tenant(),
        name: "first".into(),
        hash: "one".into(),
        mask_prefix: "ab".into(),
        mask_suffix: "cd".into(),
        value_length: 40,
        created_at: UnixMillis(1),
        last_used_at: None,
    };
    assert!(store.insert_tenant_with_key(&row, &key).await.unwrap());
}

fn events(batch: &str, count: usize) -> Vec<EventRow> {
    let event = |number: usize| EventRow {
        id: format!("{batch}-{number}"),
        tenant: tenant(),
        sandbox: SandboxId::random(),
        execution: "e".into(),
        template: "t".into(),
        build: "b".into(),
        kind: "created".into(),
        data: json!({ "filler": "x".repeat(2000) }),
        at: UnixMillis(1),
        number: i64::try_from(number).unwrap(),
    };
    (0..count).map(event).collect()
}

fn sandbox() -> SandboxRow {
    SandboxRow {
        id: SandboxId::random(),
        tenant: tenant(),
        template: "basebasebasebasebase".parse().unwrap(),
        metadata: BTreeMap::new(),
        created_at: UnixMillis(1),
        end: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_after_a_full_disk_has_room_again_is_kept() {
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("skipped: this user may not mount a small disk");
        return;
    };
    let store = open(&disk).await;
    settle_in(&store).await;
    let mut written = 0;
    for round in 0..3 {
        disk.fill();
        // More than fits into SQLite's memory, and less: they fail at different steps, if at all.
        let writes = (0..8).map(|number| {
            let (store, count) = (store.clone(), if number % 2 == 0 { 2000 } else { 20 });
            let batch = events(&format!("full-{round}-{number}"), count);
            tokio::spawn(async move { store.insert_events(&batch).await.map(|()| count) })
        });
        for (number, write) in writes.collect::<Vec<_>>().into_iter().enumerate() {
            let count = write.await.unwrap();
            assert!(count.is_err() || number % 2 == 1);
            written += count.unwrap_or(0);
        }
        disk.free();

        let row = sandbox();
        let other = open(&disk).await;
        for number in 0..8 {
            let row = sandbox();
            store.insert_sandbox(&row).await.unwrap();
            let batch = events(&format!("free-{round}-{number}"), 3);
            store.insert_events(&batch).await.unwrap();
            written += batch.len();
            assert!(other.sandbox(&row.id).await.unwrap().is_some());
        }
        other.insert_sandbox(&row).await.unwrap();
        assert!(store.sandbox(&row.id).await.unwrap().is_some());
        other.close().await;
    }
    let all = EventFilter {
        limit: 1000,
        ..EventFilter::default()
    };
    let heard = store.events(&tenant(), &all).await.unwrap();
    assert_eq!(heard.len(), written);
    store.close().await;
}
