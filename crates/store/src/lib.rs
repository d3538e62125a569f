//! The control plane's tables.
//!
//! SQLite now, PostgreSQL later: the SQL keeps to what both understand, and rows cross this
//! boundary as plain structs. Nothing here decides; it only remembers.
//!
//! # Layout
//! - [`Store`]: opens the database and brings it up to date
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

use std::{fs::OpenOptions, os::unix::fs::OpenOptionsExt, path::Path, time::Duration};

use sqlx::{
    ConnectOptions, SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

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
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// Cheap to clone: all clones share one pool.
#[derive(Debug, Clone)]
pub struct Store {
    pool: SqlitePool,
}

impl Store {
    /// Opens the database, makes it when absent (mode 0600), and runs the migrations it lacks.
    pub async fn open(path: &Path) -> Result<Self> {
        create_private(path).map_err(|source| Error::File {
            path: path.to_path_buf(),
            source,
        })?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .foreign_keys(true)
            .journal_mode(SqliteJournalMode::Wal)
            // Survives the end of this process at any moment. Only a power cut can lose the last
            // commits, and that ends every sandbox they are about as well.
            .synchronous(SqliteSynchronous::Normal)
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
        Ok(Self { pool })
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
