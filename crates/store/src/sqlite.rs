//! One file on this machine's disk.

use std::{fs::OpenOptions, os::unix::fs::OpenOptionsExt, path::Path, time::Duration};

use sqlx::{
    ConnectOptions, SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use crate::{Error, Result, clean, migrate};

/// Writers queue in SQLite itself; more connections than this only wait there.
const CONNECTIONS: u32 = 4;
/// Pages of the log at which a writer writes it back itself: only should `log` not come to it.
const LONGEST_LOG: &str = "8000";
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) async fn open(path: &Path) -> Result<SqlitePool> {
    create_private(path).map_err(|source| Error::File {
        path: path.to_path_buf(),
        source,
    })?;
    let options = SqliteConnectOptions::new()
        .filename(path)
        .foreign_keys(true)
        .journal_mode(SqliteJournalMode::Wal)
        // Survives the end of this process at any moment. Against a power cut there is `log`.
        .synchronous(SqliteSynchronous::Normal)
        .pragma("wal_autocheckpoint", LONGEST_LOG)
        .busy_timeout(BUSY_TIMEOUT)
        .disable_statement_logging();
    let pool = SqlitePoolOptions::new()
        .max_connections(CONNECTIONS)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .after_release(|connection, _| Box::pin(clean::is_clean(connection)))
        .before_acquire(|connection, _| Box::pin(clean::is_clean(connection)))
        .connect_with(options)
        .await?;
    // Of processes that open a new file together, one makes the tables.
    let mut alone = pool.begin_with("BEGIN IMMEDIATE").await?;
    migrate::migrator()
        .run(&mut *alone)
        .await
        .map_err(migrate::explained)?;
    alone.commit().await?;
    Ok(pool)
}

/// SQLite gives its side files (`-wal`, `-shm`) the mode of the database.
fn create_private(path: &Path) -> std::io::Result<()> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .map(drop)
}
