use soulbox_types::{TenantId, UnixMillis};
use sqlx::sqlite::SqliteRow;

use crate::{Error, Result, Store, row};

/// A folder that outlives sandboxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeRow {
    /// A UUID.
    pub id: String,
    pub tenant: TenantId,
    pub name: String,
    pub limit_mib: u32,
    pub created_at: UnixMillis,
}

impl Store {
    /// Oldest first.
    pub async fn volumes(&self, tenant: &TenantId) -> Result<Vec<VolumeRow>> {
        sqlx::query(
            "SELECT id, tenant_id, name, limit_mib, created_at FROM volumes
             WHERE tenant_id = $1 ORDER BY created_at, id",
        )
        .bind(tenant.as_str())
        .fetch_all(&self.pool)
        .await?
        .iter()
        .map(from_row)
        .collect()
    }

    /// Those of all tenants.
    pub async fn volume_ids(&self) -> Result<Vec<String>> {
        sqlx::query("SELECT id FROM volumes")
            .fetch_all(&self.pool)
            .await?
            .iter()
            .map(|row| row::text(row, "id"))
            .collect()
    }

    pub async fn volume(&self, id: &str) -> Result<Option<VolumeRow>> {
        let row = sqlx::query(
            "SELECT id, tenant_id, name, limit_mib, created_at FROM volumes WHERE id = $1",
        )
        .bind(id)
        .fetch_optional(&self.pool)
        .await?;
        row.as_ref().map(from_row).transpose()
    }

    /// `false` when the tenant has one of this name, and nothing was written.
    pub async fn insert_volume(&self, volume: &VolumeRow) -> Result<bool> {
        let inserted = sqlx::query(
            "INSERT INTO volumes (id, tenant_id, name, limit_mib, created_at)
             VALUES ($1, $2, $3, $4, $5) ON CONFLICT (tenant_id, name) DO NOTHING",
        )
        .bind(&volume.id)
        .bind(volume.tenant.as_str())
        .bind(&volume.name)
        .bind(i64::from(volume.limit_mib))
        .bind(row::column(volume.created_at))
        .execute(&self.pool)
        .await?
        .rows_affected();
        if inserted == 1 {
            self.sync().await?;
        }
        Ok(inserted == 1)
    }

    pub async fn delete_volume(&self, id: &str) -> Result<()> {
        sqlx::query("DELETE FROM volumes WHERE id = $1")
            .bind(id)
            .execute(&self.pool)
            .await?;
        self.sync().await
    }
}

fn from_row(row: &SqliteRow) -> Result<VolumeRow> {
    let bad_limit = |_| Error::Corrupt {
        table: "volumes",
        column: "limit_mib",
    };
    Ok(VolumeRow {
        id: row::text(row, "id")?,
        tenant: row::parsed(row, "volumes", "tenant_id")?,
        name: row::text(row, "name")?,
        limit_mib: u32::try_from(row::number(row, "limit_mib")?).map_err(bad_limit)?,
        created_at: row::time(row, "created_at")?,
    })
}
