use soulbox_types::{TenantId, Tier, UnixMillis};

use crate::{
    KeyRow, Result, Store,
    again::again,
    query::query,
    row::{self, Row},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantRow {
    pub id: TenantId,
    pub slug: String,
    pub name: String,
    /// Of sandboxes that are made without saying which. `None`: the server's.
    pub tier: Option<Tier>,
    pub created_at: UnixMillis,
}

impl Store {
    pub async fn tenants(&self) -> Result<Vec<TenantRow>> {
        query("SELECT id, slug, name, tier, created_at FROM tenants ORDER BY created_at, id")
            .fetch_all(&self.pool)
            .await?
            .iter()
            .map(from_row)
            .collect()
    }

    /// Both or neither: a tenant without a key could not be reached by anybody.
    /// `false` when the slug is taken, and nothing was written.
    pub async fn insert_tenant_with_key(&self, tenant: &TenantRow, key: &KeyRow) -> Result<bool> {
        let inserted = again(|| self.write_tenant(tenant, key)).await?;
        if inserted {
            self.sync().await?;
        }
        Ok(inserted)
    }

    async fn write_tenant(&self, tenant: &TenantRow, key: &KeyRow) -> Result<bool> {
        let mut transaction = self.pool.begin().await?;
        let inserted = query(
            "INSERT INTO tenants (id, slug, name, tier, created_at) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (slug) DO NOTHING",
        )
        .bind(tenant.id.as_str())
        .bind(&tenant.slug)
        .bind(&tenant.name)
        .bind(tenant.tier.map(Tier::as_str))
        .bind(row::column(tenant.created_at))
        .execute(&mut transaction)
        .await?;
        if inserted == 0 {
            return Ok(false);
        }
        key.insert().execute(&mut transaction).await?;
        transaction.commit().await?;
        Ok(true)
    }
}

fn from_row(row: &Row) -> Result<TenantRow> {
    Ok(TenantRow {
        id: row::parsed(row, "tenants", "id")?,
        slug: row::text(row, "slug")?,
        name: row::text(row, "name")?,
        tier: row::optional_tier(row, "tenants")?,
        created_at: row::time(row, "created_at")?,
    })
}
