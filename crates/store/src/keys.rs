use soulbox_types::{TenantId, UnixMillis};

use crate::{
    Error, Result, Store,
    query::{Query, query},
    row::{self, Row},
};

/// An API key as it is remembered: its digest, and enough of it for its owner to recognise it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRow {
    /// A UUID.
    pub id: String,
    pub tenant: TenantId,
    pub name: String,
    pub hash: String,
    pub mask_prefix: String,
    pub mask_suffix: String,
    pub value_length: u32,
    pub created_at: UnixMillis,
    pub last_used_at: Option<UnixMillis>,
}

impl Store {
    /// Those of all tenants, oldest first.
    pub async fn keys(&self) -> Result<Vec<KeyRow>> {
        query(
            "SELECT id, tenant_id, name, hash, mask_prefix, mask_suffix, value_length,
                    created_at, last_used_at
             FROM api_keys ORDER BY created_at, id",
        )
        .fetch_all(&self.pool)
        .await?
        .iter()
        .map(from_row)
        .collect()
    }

    pub async fn insert_key(&self, key: &KeyRow) -> Result<()> {
        key.insert().execute(&self.pool).await?;
        self.sync().await
    }

    pub async fn rename_key(&self, id: &str, name: &str) -> Result<()> {
        query("UPDATE api_keys SET name = $2 WHERE id = $1")
            .bind(id)
            .bind(name)
            .execute(&self.pool)
            .await?;
        self.sync().await
    }

    pub async fn delete_key(&self, id: &str) -> Result<()> {
        query("DELETE FROM api_keys WHERE id = $1")
            .bind(id)
            .execute(&self.pool)
            .await?;
        self.sync().await
    }

    pub async fn touch_key(&self, id: &str, used_at: UnixMillis) -> Result<()> {
        query("UPDATE api_keys SET last_used_at = $2 WHERE id = $1")
            .bind(id)
            .bind(row::column(used_at))
            .execute(&self.pool)
            .await?;
        self.note();
        Ok(())
    }
}

impl KeyRow {
    pub(crate) fn insert(&self) -> Query {
        query(
            "INSERT INTO api_keys (id, tenant_id, name, hash, mask_prefix, mask_suffix,
                                   value_length, created_at, last_used_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        )
        .bind(&self.id)
        .bind(self.tenant.as_str())
        .bind(&self.name)
        .bind(&self.hash)
        .bind(&self.mask_prefix)
        .bind(&self.mask_suffix)
        .bind(i64::from(self.value_length))
        .bind(row::column(self.created_at))
        .bind(self.last_used_at.map(row::column))
    }
}

fn from_row(row: &Row) -> Result<KeyRow> {
    let bad_length = |_| Error::Corrupt {
        table: "api_keys",
        column: "value_length",
    };
    Ok(KeyRow {
        id: row::text(row, "id")?,
        tenant: row::parsed(row, "api_keys", "tenant_id")?,
        name: row::text(row, "name")?,
        hash: row::text(row, "hash")?,
        mask_prefix: row::text(row, "mask_prefix")?,
        mask_suffix: row::text(row, "mask_suffix")?,
        value_length: u32::try_from(row::number(row, "value_length")?).map_err(bad_length)?,
        created_at: row::time(row, "created_at")?,
        last_used_at: row::optional_time(row, "last_used_at")?,
    })
}
