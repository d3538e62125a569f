use soulbox_types::{TenantId, UnixMillis};

use crate::{
    Result, Store,
    query::query,
    row::{self, Row},
};

/// Who wants to hear of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookRow {
    /// A UUID.
    pub id: String,
    pub tenant: TenantId,
    pub name: String,
    pub url: String,
    /// E2B's event types.
    pub events: Vec<String>,
    pub enabled: bool,
    /// The secret for signatures.
    pub sealed: String,
    pub created_at: UnixMillis,
}

impl Store {
    /// Those of all tenants, oldest first.
    pub async fn webhooks(&self) -> Result<Vec<WebhookRow>> {
        query(
            "SELECT id, tenant_id, name, url, events, enabled, sealed, created_at
             FROM webhooks ORDER BY created_at, id",
        )
        .fetch_all(&self.pool)
        .await?
        .iter()
        .map(from_row)
        .collect()
    }

    /// Makes it, or replaces the one with its id.
    pub async fn put_webhook(&self, webhook: &WebhookRow) -> Result<()> {
        query(
            "INSERT INTO webhooks (id, tenant_id, name, url, events, enabled, sealed, created_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
             ON CONFLICT (id) DO UPDATE SET name = excluded.name, url = excluded.url,
                 events = excluded.events, enabled = excluded.enabled, sealed = excluded.sealed",
        )
        .bind(&webhook.id)
        .bind(webhook.tenant.as_str())
        .bind(&webhook.name)
        .bind(&webhook.url)
        .bind(row::json("webhooks", "events", &webhook.events)?)
        .bind(i64::from(webhook.enabled))
        .bind(&webhook.sealed)
        .bind(row::column(webhook.created_at))
        .execute(&self.pool)
        .await?;
        self.sync().await
    }

    pub async fn delete_webhook(&self, id: &str) -> Result<()> {
        query("DELETE FROM webhooks WHERE id = $1")
            .bind(id)
            .execute(&self.pool)
            .await?;
        self.sync().await
    }
}

fn from_row(row: &Row) -> Result<WebhookRow> {
    Ok(WebhookRow {
        id: row::text(row, "id")?,
        tenant: row::parsed(row, "webhooks", "tenant_id")?,
        name: row::text(row, "name")?,
        url: row::text(row, "url")?,
        events: row::from_json(row, "webhooks", "events")?,
        enabled: row::number(row, "enabled")? != 0,
        sealed: row::text(row, "sealed")?,
        created_at: row::time(row, "created_at")?,
    })
}
