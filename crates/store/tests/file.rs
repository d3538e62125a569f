//! SQLite's file.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::os::unix::fs::PermissionsExt;

use soulbox_store::Store;

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
async fn the_database_is_readable_by_its_owner_only() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("soulbox.db"))
        .await
        .unwrap();
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
