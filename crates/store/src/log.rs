//! Which commits are on the disk.
//!
//! SQLite appends every commit to one log (`-wal`) and, with `synchronous = NORMAL`, leaves it to the
//! kernel. An fsync of that file puts all commits before it on the disk, in their order: it is what
//! `FULL` does in every commit, but here without the lock that keeps all other writers waiting, for
//! as many commits at once as have come together, and only for those who wait for it.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use soulbox_durable as durable;
use sqlx::SqlitePool;
use tokio::sync::{Mutex, Notify, watch};

/// What nobody waits for is on the disk within this time, and a sync.
const SOON: Duration = Duration::from_millis(200);
/// Longer than any disk should take; after that, whoever waits goes on without.
const LONGEST: Duration = Duration::from_secs(10);
/// Commits between two checkpoints: a few hundred pages.
const CHECKPOINT_AFTER: u64 = 200;

#[derive(Debug)]
pub(crate) struct Log {
    file: PathBuf,
    folder: PathBuf,
    commits: AtomicU64,
    /// How many of the commits are on the disk.
    synced: watch::Sender<u64>,
    syncing: Mutex<()>,
    committed: Notify,
}

impl Log {
    pub(crate) fn of(database: &Path) -> Self {
        let mut file = database.as_os_str().to_owned();
        file.push("-wal");
        Self {
            file: file.into(),
            folder: match database.parent() {
                Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
                _ => PathBuf::from("."),
            },
            commits: AtomicU64::new(0),
            synced: watch::Sender::new(0),
            syncing: Mutex::new(()),
            committed: Notify::new(),
        }
    }

    /// A commit that nobody waits for.
    pub(crate) fn note(&self) -> u64 {
        let ours = self.commits.fetch_add(1, Ordering::AcqRel) + 1;
        self.committed.notify_one();
        ours
    }

    /// All commits so far are on the disk when this returns, which is not hurried for it.
    pub(crate) async fn settled(&self) -> io::Result<()> {
        let ours = self.note();
        let mut synced = self.synced.subscribe();
        let settled = synced.wait_for(|synced| *synced >= ours);
        match tokio::time::timeout(LONGEST, settled).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// All commits so far are on the disk when this returns. Callers that come together share one
    /// sync: whoever waits for one under way finds afterwards that the next covered it, or does it.
    pub(crate) async fn sync(&self) -> io::Result<()> {
        let ours = self.commits.fetch_add(1, Ordering::AcqRel) + 1;
        let _one_at_a_time = self.syncing.lock().await;
        if *self.synced.borrow() >= ours {
            return Ok(());
        }
        let all = self.commits.load(Ordering::Acquire);
        let file = self.file.clone();
        // Without the file everything is in the database itself, which SQLite has synced.
        let work = move || durable::sync_file_if_there(&file);
        tokio::task::spawn_blocking(work)
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)))?;
        self.synced.send_replace(all);
        Ok(())
    }

    /// The files have their names for good: once, when they are there.
    ///
    /// The database itself is not opened here: closing it would end the locks that SQLite holds on
    /// it, and another process that closes the database would take itself for the last one and
    /// remove the log. What is in it SQLite has synced; the rest is in the log, on which nobody
    /// holds locks.
    pub(crate) async fn sync_names(&self) -> io::Result<()> {
        let folder = self.folder.clone();
        let work = move || durable::sync_folder(&folder);
        tokio::task::spawn_blocking(work)
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)))?;
        self.sync().await
    }
}

/// Syncs what nobody waits for, and writes the log back into the database now and then: otherwise
/// whoever commits at that moment would, with two syncs on the way.
pub(crate) async fn keep(log: Arc<Log>, pool: SqlitePool) {
    let mut checkpointed = 0;
    loop {
        log.committed.notified().await;
        tokio::time::sleep(SOON).await;
        if let Err(error) = log.sync().await {
            tracing::error!(%error, "the database's log cannot be put on the disk");
        }
        let commits = log.commits.load(Ordering::Acquire);
        if commits - checkpointed < CHECKPOINT_AFTER {
            continue;
        }
        checkpointed = commits;
        if pool.is_closed() {
            return;
        }
        if let Err(error) = checkpoint(&pool).await {
            tracing::warn!(%error, "the database's log cannot be written back; trying again later");
        }
    }
}

/// The first write afterwards starts the log anew, and SQLite syncs its head: that write is ours.
async fn checkpoint(pool: &SqlitePool) -> sqlx::Result<()> {
    let mut connection = pool.acquire().await?;
    sqlx::query("PRAGMA wal_checkpoint(PASSIVE)")
        .execute(&mut *connection)
        .await?;
    // Nothing reads it.
    sqlx::query("PRAGMA user_version = 1")
        .execute(&mut *connection)
        .await?;
    Ok(())
}
