use std::collections::BTreeMap;

use soulbox_types::{TenantId, UnixMillis};
use sqlx::sqlite::SqliteRow;

use crate::{Result, Store, row};

/// A stored secret. Its value is sealed: this crate cannot read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRow {
    pub id: String,
    pub tenant: TenantId,
    pub name: String,
    pub version: i64,
    pub metadata: BTreeMap<String, String>,
    pub sealed: String,
    pub created_at: UnixMillis,
    pub updated_at: UnixMillis,
}

const COLUMNS: &str =
    "SELECT id, tenant_id, name, version, metadata, sealed, created_at, updated_at
                       FROM secrets WHERE tenant_id = $1";
const FIND: &str = "SELECT id, tenant_id, name, version, metadata, sealed, created_at, updated_at
                    FROM secrets WHERE tenant_id = $1 AND (id = $2 OR name = $2)";

impl Store {
    pub async fn secrets(&self, tenant: &TenantId) -> Result<Vec<SecretRow>> {
        sqlx::query(COLUMNS)
            .bind(tenant.as_str())
            .fetch_all(&self.pool)
            .await?
            .iter()
            .map(from_row)
            .collect()
    }

    /// By id or name.
    pub async fn secret(&self, tenant: &TenantId, id_or_name: &str) -> Result<Option<SecretRow>> {
        let row = sqlx::query(FIND)
            .bind(tenant.as_str())
            .bind(id_or_name)
            .fetch_optional(&self.pool)
            .await?;
        row.as_ref().map(from_row).transpose()
    }

    /// `false` when the tenant has one of this name, and nothing was written.
    pub async fn insert_secret(&self, secret: &SecretRow) -> Result<bool> {
        let inserted = sqlx::query(
            "INSERT INTO secrets (id, tenant_id, name, version, metadata, sealed, created_at,
                                  updated_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (tenant_id, name) DO NOTHING",
        )
        .bind(&secret.id)
        .bind(secret.tenant.as_str())
        .bind(&secret.name)
        .bind(secret.version)
        .bind(row::json("secrets", "metadata", &secret.metadata)?)
        .bind(&secret.sealed)
        .bind(row::column(secret.created_at))
        .bind(row::column(secret.updated_at))
        .execute(&self.pool)
        .await?
        .rows_affected();
        self.sync().await?;
        Ok(inserted == 1)
    }

    /// Writes the version after the one that was read. `false` when another writer was first, or
    /// it is gone.
    pub async fn update_secret(&self, secret: &SecretRow) -> Result<bool> {
        let updated = sqlx::query(
            "UPDATE secrets SET version = $2, metadata = $3, sealed = $4, updated_at = $5
             WHERE id = $1 AND version = $2 - 1",
        )
        .bind(&secret.id)
        .bind(secret.version)
        .bind(row::json("secrets", "metadata", &secret.metadata)?)
        .bind(&secret.sealed)
        .bind(row::column(secret.updated_at))
        .execute(&self.pool)
        .await?
        .rows_affected();
        self.sync().await?;
        Ok(updated == 1)
    }

    /// `false` when there is none.
    pub async fn delete_secret(&self, tenant: &TenantId, id: &str) -> Result<bool> {
        let deleted = sqlx::query("DELETE FROM secrets WHERE tenant_id = $1 AND id = $2")
            .bind(tenant.as_str())
            .bind(id)
            .execute(&self.pool)
            .await?
            .rows_affected();
        self.sync().await?;
        Ok(deleted == 1)
    }
}

fn from_row(row: &SqliteRow) -> Result<SecretRow> {
    Ok(SecretRow {
        id: row::text(row, "id")?,
        tenant: row::parsed(row, "secrets", "tenant_id")?,
        name: row::text(row, "name")?,
        version: row::number(row, "version")?,
        metadata: row::from_json(row, "secrets", "metadata")?,
        sealed: row::text(row, "sealed")?,
        created_at: row::time(row, "created_at")?,
        updated_at: row::time(row, "updated_at")?,
    })
}
