use serde_json::Value;
use soulbox_types::{SandboxId, TenantId, UnixMillis};

use crate::{
    Result, Store,
    again::{again, in_order},
    query::query,
    row::{self, Row},
};

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

/// Each names the column that its index begins with: with one statement for both, SQLite would read
/// all events of a tenant to find those of one sandbox. An expression is in no index.
macro_rules! select {
    ($whose:literal, $order:literal) => {
        concat!(
            "SELECT id, tenant_id, sandbox_id, execution_id, template_id, build_id, kind, data, at,
                    number
             FROM events WHERE ",
            $whose,
            " AND ($3 = '' OR $3 LIKE '% ' || kind || ' %') ORDER BY ",
            $order,
            " LIMIT $4 OFFSET $5"
        )
    };
}

/// Newest first, oldest first.
const OF_TENANT: [&str; 2] = [
    select!("tenant_id = $1 AND $2 = ''", "at DESC, number DESC"),
    select!("tenant_id = $1 AND $2 = ''", "at, number"),
];
const OF_SANDBOX: [&str; 2] = [
    select!(
        "sandbox_id = $2 AND tenant_id || '' = $1",
        "at DESC, number DESC"
    ),
    select!("sandbox_id = $2 AND tenant_id || '' = $1", "at, number"),
];

impl Store {
    /// All or none. Those that are there already stay as they are, so it can be tried again.
    pub async fn insert_events(&self, events: &[EventRow]) -> Result<()> {
        again(|| self.write_events(events)).await?;
        self.note();
        Ok(())
    }

    async fn write_events(&self, events: &[EventRow]) -> Result<()> {
        let mut transaction = self.pool.begin().await?;
        for event in in_order(events, |event| &event.id) {
            query(
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
            .execute(&mut transaction)
            .await?;
        }
        transaction.commit().await
    }

    pub async fn events(&self, tenant: &TenantId, filter: &EventFilter) -> Result<Vec<EventRow>> {
        let kinds = match filter.kinds.as_slice() {
            [] => String::new(),
            // Words between spaces, so that one is never found inside another.
            kinds => format!(" {} ", kinds.join(" ")),
        };
        let of = match &filter.sandbox {
            Some(_) => OF_SANDBOX,
            None => OF_TENANT,
        };
        let sql = of[usize::from(filter.oldest_first)];
        query(sql)
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
        let row = query("SELECT at FROM events ORDER BY at DESC LIMIT 1")
            .fetch_optional(&self.pool)
            .await?;
        row.map(|row| row::time(&row, "at")).transpose()
    }

    /// Forgets those from before `before`, and the oldest beyond `most`.
    pub async fn prune_events(&self, before: UnixMillis, most: u32) -> Result<u64> {
        let old = query("DELETE FROM events WHERE at < $1")
            .bind(row::column(before))
            .execute(&self.pool)
            .await?;
        let beyond = query(
            "DELETE FROM events WHERE at < (SELECT at FROM events ORDER BY at DESC
                                            LIMIT 1 OFFSET $1)",
        )
        .bind(i64::from(most))
        .execute(&self.pool)
        .await?;
        Ok(old + beyond)
    }
}

fn from_row(row: &Row) -> Result<EventRow> {
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

#[cfg(test)]
mod tests {
    use sqlx::Row as _;

    use super::*;
    use crate::pool::Pool;

    #[tokio::test]
    async fn events_of_one_sandbox_are_found_without_reading_those_of_its_tenant() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("soulbox.db"))
            .await
            .unwrap();
        let Pool::Sqlite(pool) = &store.pool else {
            panic!("another database")
        };
        for (sql, index) in [
            (OF_TENANT[0], "events_by_tenant"),
            (OF_TENANT[1], "events_by_tenant"),
            (OF_SANDBOX[0], "events_by_sandbox"),
            (OF_SANDBOX[1], "events_by_sandbox"),
        ] {
            let explain = format!("EXPLAIN QUERY PLAN {sql}");
            let plan = sqlx::query(sqlx::AssertSqlSafe(explain))
                .fetch_all(pool)
                .await
                .unwrap();
            let [step] = plan.as_slice() else {
                panic!("it sorts: {}", plan.len());
            };
            let step: String = step.get("detail");
            assert!(step.starts_with("SEARCH") && step.contains(index), "{step}");
        }
    }
}
