use std::collections::BTreeMap;

use soulbox_types::{TenantId, UnixMillis};

use crate::{
    Inserted, Result, Store,
    again::again,
    insert::at_most,
    query::query,
    row::{self, Row},
};

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
        query(COLUMNS)
            .bind(tenant.as_str())
            .fetch_all(&self.pool)
            .await?
            .iter()
            .map(from_row)
            .collect()
    }

    /// By id or name.
    pub async fn secret(&self, tenant: &TenantId, id_or_name: &str) -> Result<Option<SecretRow>> {
        let row = query(FIND)
            .bind(tenant.as_str())
            .bind(id_or_name)
            .fetch_optional(&self.pool)
            .await?;
        row.as_ref().map(from_row).transpose()
    }

    /// The tenant has at most `most`.
    pub async fn insert_secret(&self, secret: &SecretRow, most: usize) -> Result<Inserted> {
        let inserted = again(|| self.write_secret(secret, most)).await?;
        if inserted == Inserted::Yes {
            self.sync().await?;
        }
        Ok(inserted)
    }

    async fn write_secret(&self, secret: &SecretRow, most: usize) -> Result<Inserted> {
        let mut transaction = self.pool.begin_alone().await?;
        let inserted = query(
            "INSERT INTO secrets (id, tenant_id, name, version, metadata, sealed, created_at,
                                  updated_at)
             SELECT $1, $2, $3, $4, $5, $6, $7, $8
             WHERE (SELECT COUNT(*) FROM secrets WHERE tenant_id = $2) < $9
             ON CONFLICT (tenant_id, name) DO NOTHING",
        )
        .bind(&secret.id)
        .bind(secret.tenant.as_str())
        .bind(&secret.name)
        .bind(secret.version)
        .bind(row::json("secrets", "metadata", &secret.metadata)?)
        .bind(&secret.sealed)
        .bind(row::column(secret.created_at))
        .bind(row::column(secret.updated_at))
        .bind(at_most(most))
        .execute(&mut transaction)
        .await?;
        if inserted == 1 {
            transaction.commit().await?;
            return Ok(Inserted::Yes);
        }
        let taken = query(FIND)
            .bind(secret.tenant.as_str())
            .bind(&secret.name)
            .fetch_optional(&mut transaction)
            .await?;
        Ok(taken.map_or(Inserted::Full, |_| Inserted::NameTaken))
    }

    /// Writes the version after the one that was read. `false` when another writer was first, or
    /// it is gone.
    pub async fn update_secret(&self, secret: &SecretRow) -> Result<bool> {
        let updated = query(
            "UPDATE secrets SET version = $2, metadata = $3, sealed = $4, updated_at = $5
             WHERE id = $1 AND version = $2 - 1",
        )
        .bind(&secret.id)
        .bind(secret.version)
        .bind(row::json("secrets", "metadata", &secret.metadata)?)
        .bind(&secret.sealed)
        .bind(row::column(secret.updated_at))
        .execute(&self.pool)
        .await?;
        self.sync().await?;
        Ok(updated == 1)
    }

    /// `false` when there is none.
    pub async fn delete_secret(&self, tenant: &TenantId, id: &str) -> Result<bool> {
        let deleted = query("DELETE FROM secrets WHERE tenant_id = $1 AND id = $2")
            .bind(tenant.as_str())
            .bind(id)
            .execute(&self.pool)
            .await?;
        self.sync().await?;
        Ok(deleted == 1)
    }
}

fn from_row(row: &Row) -> Result<SecretRow> {
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
