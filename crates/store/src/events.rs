use serde_json::Value;
use soulbox_types::{SandboxId, TenantId, UnixMillis};
use sqlx::sqlite::SqliteRow;

use crate::{Result, Store, row};

/// Something that happened to a sandbox.
#[derive(Debug, Clone, PartialEq)]
pub struct EventRow {
    /// A UUID.
    pub id: String,
    pub tenant: TenantId,
    pub sandbox: SandboxId,
    pub execution: String,
    pub template: String,
    pub build: String,
    /// The last word of E2B's `sandbox.lifecycle.<kind>`.
    pub kind: String,
    pub data: Value,
    pub at: UnixMillis,
    /// Orders events of the same millisecond.
    pub number: i64,
}

/// Which events, and which part of them.
#[derive(Debug, Clone, Default)]
pub struct EventFilter {
    pub sandbox: Option<SandboxId>,
    /// Empty: all kinds.
    pub kinds: Vec<String>,
    pub oldest_first: bool,
    pub offset: u32,
    pub limit: u32,
}

const NEWEST_FIRST: &str = "
    SELECT id, tenant_id, sandbox_id, execution_id, template_id, build_id, kind, data, at, number
    FROM events WHERE tenant_id = $1 AND ($2 = '' OR sandbox_id = $2)
        AND ($3 = '' OR $3 LIKE '% ' || kind || ' %')
    ORDER BY at DESC, number DESC LIMIT $4 OFFSET $5";
const OLDEST_FIRST: &str = "
    SELECT id, tenant_id, sandbox_id, execution_id, template_id, build_id, kind, data, at, number
    FROM events WHERE tenant_id = $1 AND ($2 = '' OR sandbox_id = $2)
        AND ($3 = '' OR $3 LIKE '% ' || kind || ' %')
    ORDER BY at, number LIMIT $4 OFFSET $5";

impl Store {
    /// All or none. Those that are there already stay as they are, so it can be tried again.
    pub async fn insert_events(&self, events: &[EventRow]) -> Result<()> {
        let mut transaction = self.pool.begin().await?;
        for event in events {
            sqlx::query(
                "INSERT INTO events (id, tenant_id, sandbox_id, execution_id, template_id,
                                     build_id, kind, data, at, number)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
                 ON CONFLICT (id) DO NOTHING",
            )
            .bind(&event.id)
            .bind(event.tenant.as_str())
            .bind(event.sandbox.as_str())
            .bind(&event.execution)
            .bind(&event.template)
            .bind(&event.build)
            .bind(&event.kind)
            .bind(event.data.to_string())
            .bind(row::column(event.at))
            .bind(event.number)
            .execute(&mut *transaction)
            .await?;
        }
        transaction.commit().await?;
        Ok(())
    }

    pub async fn events(&self, tenant: &TenantId, filter: &EventFilter) -> Result<Vec<EventRow>> {
        let kinds = match filter.kinds.as_slice() {
            [] => String::new(),
            // Words between spaces, so that one is never found inside another.
            kinds => format!(" {} ", kinds.join(" ")),
        };
        let sql = if filter.oldest_first {
            OLDEST_FIRST
        } else {
            NEWEST_FIRST
        };
        sqlx::query(sql)
            .bind(tenant.as_str())
            .bind(filter.sandbox.as_ref().map_or("", SandboxId::as_str))
            .bind(kinds)
            .bind(i64::from(filter.limit))
            .bind(i64::from(filter.offset))
            .fetch_all(&self.pool)
            .await?
            .iter()
            .map(from_row)
            .collect()
    }

    /// When the newest one happened.
    pub async fn latest_event(&self) -> Result<Option<UnixMillis>> {
        let row = sqlx::query("SELECT at FROM events ORDER BY at DESC LIMIT 1")
            .fetch_optional(&self.pool)
            .await?;
        row.map(|row| row::time(&row, "at")).transpose()
    }

    /// Forgets those from before `before`, and the oldest beyond `most`.
    pub async fn prune_events(&self, before: UnixMillis, most: u32) -> Result<u64> {
        let old = sqlx::query("DELETE FROM events WHERE at < $1")
            .bind(row::column(before))
            .execute(&self.pool)
            .await?
            .rows_affected();
        let beyond = sqlx::query(
            "DELETE FROM events WHERE at < (SELECT at FROM events ORDER BY at DESC
                                            LIMIT 1 OFFSET $1)",
        )
        .bind(i64::from(most))
        .execute(&self.pool)
        .await?
        .rows_affected();
        Ok(old + beyond)
    }
}

fn from_row(row: &SqliteRow) -> Result<EventRow> {
    Ok(EventRow {
        id: row::text(row, "id")?,
        tenant: row::parsed(row, "events", "tenant_id")?,
        sandbox: row::parsed(row, "events", "sandbox_id")?,
        execution: row::text(row, "execution_id")?,
        template: row::text(row, "template_id")?,
        build: row::text(row, "build_id")?,
        kind: row::text(row, "kind")?,
        data: row::from_json(row, "events", "data")?,
        at: row::time(row, "at")?,
        number: row::number(row, "number")?,
    })
}
