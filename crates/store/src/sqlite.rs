//! One file on this machine's disk.

use std::{
    fs::OpenOptions,
    io,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    time::{Duration, Instant},
};

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
const BETWEEN_TRIES: Duration = Duration::from_millis(10);
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
        .before_acquire(|connection, _| Box::pin(clean::is_clean(connection)));
    let pool = connect(pool, options).await?;
    // Of processes that open a new file together, one makes the tables.
    let mut alone = pool.begin_with("BEGIN IMMEDIATE").await?;
    migrate::migrator()
        .run(&mut *alone)
        .await
        .map_err(migrate::explained)?;
    alone.commit().await?;
    Ok(pool)
}

/// Of those that open a new file together, one makes it a database with a log. SQLite turns the
/// others away at once there, whatever their busy timeout.
async fn connect(
    pool: SqlitePoolOptions,
    options: SqliteConnectOptions,
) -> sqlx::Result<SqlitePool> {
    const BUSY: &str = "5";
    let until = Instant::now() + BUSY_TIMEOUT;
    loop {
        match pool.clone().connect_with(options.clone()).await {
            Err(error)
                if Error::code_of(&error).is_some_and(|code| code == BUSY)
                    && Instant::now() < until =>
            {
                tokio::time::sleep(BETWEEN_TRIES).await;
            }
            done => return done,
        }
    }
}

/// SQLite gives its side files (`-wal`, `-shm`) the mode of the database.
///
/// A file that is there is not opened: closing it would end the locks that this process has on it.
fn create_private(path: &Path) -> io::Result<()> {
    let created = OpenOptions::new()
        .create_new(true)
        .append(true)
        .mode(0o600)
        .open(path);
    match created {
        Ok(_) => Ok(()),
        Err(_) if path.is_file() => Ok(()),
        Err(_) if path.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Err(error) => Err(error),
    }
}
