//! Which database, and transactions in it.

use sqlx::{PgPool, Postgres, Sqlite, SqlitePool};

use crate::{Result, postgres};

/// Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) enum Pool {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

/// Undone when it is dropped without a commit.
#[derive(Debug)]
pub(crate) enum Transaction {
    Sqlite(sqlx::Transaction<'static, Sqlite>),
    Postgres(sqlx::Transaction<'static, Postgres>),
}

impl Pool {
    /// For writes each of which would be right alone: rows and unique keys are all that they share
    /// with others.
    pub(crate) async fn begin(&self) -> Result<Transaction> {
        Ok(match self {
            Self::Sqlite(pool) => Transaction::Sqlite(pool.begin().await?),
            Self::Postgres(pool) => {
                Transaction::Postgres(postgres::bounded(async { Ok(pool.begin().await?) }).await?)
            }
        })
    }

    /// For writes that depend on what they read, a count for example: as if nobody else wrote
    /// meanwhile. SQLite has no other kind once the first statement has written. PostgreSQL ends
    /// all but one of those that got into each other's way, so do it [`again`](crate::again).
    pub(crate) async fn begin_alone(&self) -> Result<Transaction> {
        const BEGIN: &str = "BEGIN ISOLATION LEVEL SERIALIZABLE";
        match self {
            Self::Sqlite(_) => self.begin().await,
            Self::Postgres(pool) => {
                let begun = async { Ok(pool.begin_with(BEGIN).await?) };
                Ok(Transaction::Postgres(postgres::bounded(begun).await?))
            }
        }
    }

    pub(crate) async fn close(&self) {
        match self {
            Self::Sqlite(pool) => pool.close().await,
            Self::Postgres(pool) => pool.close().await,
        }
    }
}

impl Transaction {
    pub(crate) async fn commit(self) -> Result<()> {
        match self {
            Self::Sqlite(transaction) => Ok(transaction.commit().await?),
            Self::Postgres(transaction) => {
                postgres::bounded(async { Ok(transaction.commit().await?) }).await
            }
        }
    }
}
