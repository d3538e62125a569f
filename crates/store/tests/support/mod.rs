//! A database for each test, of both kinds, and nothing of it afterwards.

#![allow(dead_code, reason = "not every test needs all of it")]

pub(crate) mod postgres;
pub(crate) mod rows;

use soulbox_store::Store;
use tempfile::TempDir;

use self::postgres::Server;

/// Where a test's tables are.
pub(crate) enum Database {
    Sqlite(TempDir),
    Postgres(Server),
}

impl Database {
    pub(crate) fn sqlite() -> Self {
        Self::Sqlite(tempfile::tempdir().unwrap())
    }

    /// `None`: not here, which is said.
    pub(crate) fn postgres() -> Option<Self> {
        Server::start().map(Self::Postgres)
    }

    /// As each server that shares it does. It stays empty.
    pub(crate) async fn connect(&self) -> Store {
        self.try_connect().await.unwrap()
    }

    pub(crate) async fn try_connect(&self) -> soulbox_store::Result<Store> {
        match self {
            Self::Sqlite(folder) => Store::open(&folder.path().join("soulbox.db")).await,
            Self::Postgres(server) => Store::connect(&server.url()).await,
        }
    }

    /// With the two tenants of [`rows`], and a key of each.
    pub(crate) async fn open(&self) -> Store {
        let store = self.connect().await;
        for (number, slug) in ["one", "two"].into_iter().enumerate() {
            let (tenant, key) = (rows::tenant(number, slug), rows::key(number, slug));
            store.insert_tenant_with_key(&tenant, &key).await.unwrap();
        }
        store
    }

    /// A statement from outside, as an operator or another program would give it.
    pub(crate) async fn run(&self, sql: &str) {
        let sql = sqlx::AssertSqlSafe(sql);
        match self {
            Self::Sqlite(folder) => {
                let file = folder.path().join("soulbox.db");
                let pool = sqlx::SqlitePool::connect(file.to_str().unwrap());
                let pool = pool.await.unwrap();
                sqlx::raw_sql(sql).execute(&pool).await.unwrap();
                pool.close().await;
            }
            Self::Postgres(server) => {
                let pool = server.pool().await;
                sqlx::raw_sql(sql).execute(&pool).await.unwrap();
                pool.close().await;
            }
        }
    }
}

/// Makes two tests of each function: one for each database. A function that is in no list is
/// unused, and the compiler says so.
macro_rules! on_both {
    ($($test:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::support::Database::sqlite()).await;
            })*
        }

        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                if let Some(database) = crate::support::Database::postgres() {
                    super::$test(database).await;
                }
            })*
        }
    };
}
pub(crate) use on_both;
