use soulbox_types::{TenantId, UnixMillis};

use crate::{
    Error, Inserted, Result, Store,
    again::again,
    insert::at_most,
    query::query,
    row::{self, Row},
};

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
        query(
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
        query("SELECT id FROM volumes")
            .fetch_all(&self.pool)
            .await?
            .iter()
            .map(|row| row::text(row, "id"))
            .collect()
    }

    pub async fn volume(&self, id: &str) -> Result<Option<VolumeRow>> {
        let row =
            query("SELECT id, tenant_id, name, limit_mib, created_at FROM volumes WHERE id = $1")
                .bind(id)
                .fetch_optional(&self.pool)
                .await?;
        row.as_ref().map(from_row).transpose()
    }

    /// The tenant has at most `most`.
    pub async fn insert_volume(&self, volume: &VolumeRow, most: usize) -> Result<Inserted> {
        let inserted = again(|| self.write_volume(volume, most)).await?;
        if inserted == Inserted::Yes {
            self.sync().await?;
        }
        Ok(inserted)
    }

    async fn write_volume(&self, volume: &VolumeRow, most: usize) -> Result<Inserted> {
        let mut transaction = self.pool.begin_alone().await?;
        let inserted = query(
            "INSERT INTO volumes (id, tenant_id, name, limit_mib, created_at)
             SELECT $1, $2, $3, $4, $5
             WHERE (SELECT COUNT(*) FROM volumes WHERE tenant_id = $2) < $6
             ON CONFLICT (tenant_id, name) DO NOTHING",
        )
        .bind(&volume.id)
        .bind(volume.tenant.as_str())
        .bind(&volume.name)
        .bind(i64::from(volume.limit_mib))
        .bind(row::column(volume.created_at))
        .bind(at_most(most))
        .execute(&mut transaction)
        .await?;
        if inserted == 1 {
            transaction.commit().await?;
            return Ok(Inserted::Yes);
        }
        let taken = query("SELECT id FROM volumes WHERE tenant_id = $1 AND name = $2")
            .bind(volume.tenant.as_str())
            .bind(&volume.name)
            .fetch_optional(&mut transaction)
            .await?;
        Ok(taken.map_or(Inserted::Full, |_| Inserted::NameTaken))
    }

    pub async fn delete_volume(&self, id: &str) -> Result<()> {
        query("DELETE FROM volumes WHERE id = $1")
            .bind(id)
            .execute(&self.pool)
            .await?;
        self.sync().await
    }
}

fn from_row(row: &Row) -> Result<VolumeRow> {
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
