//! The control plane's tables.
//!
//! In SQLite, or in PostgreSQL: the same statements, which keep to what both understand
//! (docs/decisions/0001-one-store-two-databases.md). Rows cross this boundary as plain structs.
//! Nothing here decides; it only remembers.
//!
//! What a method writes is on the disk when it returns. In SQLite what belongs to a create, an end
//! or an event, and what can be made up for, is not waited for: it is there a moment later
//! ([`Store::settled`]). PostgreSQL waits with each commit, as its own settings say.
//!
//! # Layout
//! - [`Store`]: opens the database and brings it up to date
//! - `sqlite`, `postgres`: how each of them is opened, and what bounds it has
//! - `pool`, `query`, `row`: one face for both
//! - `again`: transactions that got into each other's way
//! - `log`, `clean`: which commits of SQLite are on the disk, and which connections can be used again
//! - `tenants`, `keys`: who may come in
//! - `sandboxes`: what should run and what ran
//! - `templates`, `builds`, `snapshots`: what sandboxes are made from
//! - `idempotency`: answers that a repeated request gets again
//! - `secrets`, `volumes`: what tenants keep between sandboxes
//! - `events`, `webhooks`, `team_use`: what happened, who is told, what it adds up to

mod again;
mod builds;
mod clean;
mod error;
mod events;
mod idempotency;
mod insert;
mod keys;
mod log;
mod migrate;
mod pool;
mod postgres;
mod query;
mod row;
mod sandboxes;
mod secrets;
mod snapshots;
mod sqlite;
mod team_use;
mod templates;
mod tenants;
mod volumes;
mod webhooks;

use std::{path::Path, sync::Arc};

use tokio::task::AbortHandle;

pub use self::{
    builds::{BuildReason, BuildRow, BuildStatus},
    error::{Error, Result},
    events::{EventFilter, EventRow},
    idempotency::{IdempotencyRecord, IdempotencyRow, Started},
    insert::Inserted,
    keys::KeyRow,
    sandboxes::{EndRow, SandboxRow, TemplateUse},
    secrets::SecretRow,
    snapshots::{SnapshotBuildRow, SnapshotRow, SnapshotTagRow},
    team_use::{PauseChange, RunSpan},
    templates::{TemplateRow, TemplateTagRow},
    tenants::TenantRow,
    volumes::VolumeRow,
    webhooks::WebhookRow,
};
use self::{log::Log, pool::Pool};

/// Cheap to clone: all clones share one pool.
#[derive(Debug, Clone)]
pub struct Store {
    pool: Pool,
    disk: Disk,
}

/// Who puts commits on the disk.
#[derive(Debug, Clone)]
enum Disk {
    /// This process, behind SQLite.
    Ours { log: Arc<Log>, _keeper: Arc<Keeper> },
    /// The server, before it answers.
    Servers,
}

#[derive(Debug)]
struct Keeper(AbortHandle);

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Store {
    /// SQLite: opens the file, makes it when absent (mode 0600), and runs the migrations it lacks.
    pub async fn open(path: &Path) -> Result<Self> {
        let pool = sqlite::open(path).await?;
        let log = Arc::new(Log::of(path));
        log.sync_names().await.map_err(|source| Error::File {
            path: path.to_path_buf(),
            source,
        })?;
        let keeper = tokio::spawn(log::keep(Arc::clone(&log), pool.clone()));
        Ok(Self {
            pool: Pool::Sqlite(pool),
            disk: Disk::Ours {
                log,
                _keeper: Arc::new(Keeper(keeper.abort_handle())),
            },
        })
    }

    /// PostgreSQL: `postgres://user:password@host:port/database`, with the parameters of libpq. Runs
    /// the migrations that the database lacks; of servers that start together one does.
    pub async fn connect(url: &str) -> Result<Self> {
        Ok(Self {
            pool: Pool::Postgres(postgres::connect(url).await?),
            disk: Disk::Servers,
        })
    }

    /// All that was written so far is on the disk when this returns; nothing is hurried for it.
    pub async fn settled(&self) -> Result<()> {
        match &self.disk {
            Disk::Ours { log, .. } => log.settled().await.map_err(Error::Unsynced),
            Disk::Servers => Ok(()),
        }
    }

    async fn sync(&self) -> Result<()> {
        match &self.disk {
            Disk::Ours { log, .. } => log.sync().await.map_err(Error::Unsynced),
            Disk::Servers => Ok(()),
        }
    }

    /// A commit that nobody waits for.
    fn note(&self) {
        if let Disk::Ours { log, .. } = &self.disk {
            log.note();
        }
    }

    /// Writes a copy of the whole database, as it is at one moment, to a new file. Readers and
    /// writers go on meanwhile. [`Error::NotAFile`] where the database is PostgreSQL.
    pub async fn copy_to(&self, path: &Path) -> Result<()> {
        let Pool::Sqlite(pool) = &self.pool else {
            return Err(Error::NotAFile);
        };
        sqlx::query("VACUUM INTO ?")
            .bind(path.to_string_lossy().into_owned())
            .execute(pool)
            .await?;
        Ok(())
    }

    /// Whether the database answers, and would let somebody write. Nothing is written.
    pub async fn ping(&self) -> Result<()> {
        match &self.pool {
            Pool::Sqlite(pool) => {
                let writing = pool.begin_with("BEGIN IMMEDIATE").await?;
                writing.rollback().await?;
            }
            Pool::Postgres(pool) => {
                let asked = async { Ok(sqlx::query("SELECT 1").fetch_one(pool).await?) };
                drop(postgres::bounded(asked).await?);
            }
        }
        Ok(())
    }

    /// Ends the pool, after what is under way. SQLite writes its log back into its file.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}
