//! The control plane's tables.
//!
//! SQLite now, PostgreSQL later: the SQL keeps to what both understand, and rows cross this
//! boundary as plain structs. Nothing here decides; it only remembers.
//!
//! What a method writes is on the disk when it returns. Only what belongs to a create, an end or an
//! event, and what can be made up for, is not waited for: it is there a moment later ([`Store::settled`]).
//!
//! # Layout
//! - [`Store`]: opens the database and brings it up to date
//! - `log`: which commits are on the disk
//! - `tenants`, `keys`: who may come in
//! - `sandboxes`: what should run and what ran
//! - `templates`, `builds`, `snapshots`: what sandboxes are made from
//! - `idempotency`: answers that a repeated request gets again
//! - `secrets`, `volumes`: what tenants keep between sandboxes
//! - `events`, `webhooks`, `team_use`: what happened, who is told, what it adds up to

mod builds;
mod clean;
mod error;
mod events;
mod idempotency;
mod keys;
mod log;
mod migrate;
mod row;
mod sandboxes;
mod secrets;
mod snapshots;
mod team_use;
mod templates;
mod tenants;
mod volumes;
mod webhooks;

use std::{fs::OpenOptions, os::unix::fs::OpenOptionsExt, path::Path, sync::Arc, time::Duration};

use sqlx::{
    ConnectOptions, SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use tokio::task::AbortHandle;

use self::log::Log;
pub use self::{
    builds::{BuildReason, BuildRow, BuildStatus},
    error::{Error, Result},
    events::{EventFilter, EventRow},
    idempotency::{IdempotencyRecord, IdempotencyRow, Started},
    keys::KeyRow,
    sandboxes::{EndRow, SandboxRow, TemplateUse},
    secrets::SecretRow,
    snapshots::{SnapshotBuildRow, SnapshotRow, SnapshotTagRow},
    team_use::{Life, Rest},
    templates::{TemplateRow, TemplateTagRow},
    tenants::TenantRow,
    volumes::VolumeRow,
    webhooks::WebhookRow,
};

/// Writers queue in SQLite itself; more connections than this only wait there.
const CONNECTIONS: u32 = 4;
/// Pages of the log at which a writer writes it back itself: only should `log` not come to it.
const LONGEST_LOG: &str = "8000";
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// Cheap to clone: all clones share one pool.
#[derive(Debug, Clone)]
pub struct Store {
    pool: SqlitePool,
    log: Arc<Log>,
    _keeper: Arc<Keeper>,
}

#[derive(Debug)]
struct Keeper(AbortHandle);

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Store {
    /// Opens the database, makes it when absent (mode 0600), and runs the migrations it lacks.
    pub async fn open(path: &Path) -> Result<Self> {
        let unusable = |source| Error::File {
            path: path.to_path_buf(),
            source,
        };
        create_private(path).map_err(unusable)?;
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
        migrate::migrator().run(&pool).await?;
        let log = Arc::new(Log::of(path));
        log.sync_names().await.map_err(unusable)?;
        let keeper = tokio::spawn(log::keep(Arc::clone(&log), pool.clone()));
        Ok(Self {
            pool,
            log,
            _keeper: Arc::new(Keeper(keeper.abort_handle())),
        })
    }

    /// All that was written so far is on the disk when this returns; nothing is hurried for it.
    pub async fn settled(&self) -> Result<()> {
        self.log.settled().await.map_err(Error::Unsynced)
    }

    async fn sync(&self) -> Result<()> {
        self.log.sync().await.map_err(Error::Unsynced)
    }

    /// Ends the pool, after what is under way. Writes the log back into the database file.
    pub async fn close(&self) {
        self.pool.close().await;
    }
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
