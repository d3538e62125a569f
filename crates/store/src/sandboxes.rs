use std::collections::BTreeMap;

use soulbox_types::{EndReason, SandboxId, TemplateId, TenantId, UnixMillis};

use crate::{
    Error, Result, Store,
    again::again,
    query::{Query, query},
    row::{self, Row},
};

const MAX_DETAIL_CHARS: usize = 500;

/// A sandbox that should run, or one that did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxRow {
    pub id: SandboxId,
    pub tenant: TenantId,
    pub template: TemplateId,
    pub metadata: BTreeMap<String, String>,
    pub created_at: UnixMillis,
    pub end: Option<EndRow>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndRow {
    pub at: UnixMillis,
    pub reason: EndReason,
    /// For people.
    pub detail: String,
}

impl EndRow {
    /// An end that happens now. The detail may come from inside the sandbox: it is cut to a
    /// length, and loses the one character that PostgreSQL cannot hold.
    pub fn now(reason: EndReason, detail: &str) -> Self {
        let detail = detail.chars().filter(|&c| c != '\0');
        Self {
            at: UnixMillis::now(),
            reason,
            detail: detail.take(MAX_DETAIL_CHARS).collect(),
        }
    }
}

/// How often a template was used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateUse {
    pub template: TemplateId,
    pub spawned: u64,
    pub last_spawned_at: UnixMillis,
}

impl Store {
    pub async fn insert_sandbox(&self, sandbox: &SandboxRow) -> Result<()> {
        sandbox.insert()?.execute(&self.pool).await?;
        self.note();
        Ok(())
    }

    /// The first end counts; later ones change nothing.
    pub async fn end_sandbox(&self, id: &SandboxId, end: &EndRow) -> Result<()> {
        query(
            "UPDATE sandboxes SET ended_at = $2, end_reason = $3, end_detail = $4
             WHERE id = $1 AND ended_at IS NULL",
        )
        .bind(id.as_str())
        .bind(row::column(end.at))
        .bind(end.reason.as_str())
        .bind(&end.detail)
        .execute(&self.pool)
        .await?;
        self.note();
        Ok(())
    }

    pub async fn sandbox(&self, id: &SandboxId) -> Result<Option<SandboxRow>> {
        const SQL: &str = "SELECT id, tenant_id, template_id, metadata, created_at, ended_at,
                                  end_reason, end_detail
                           FROM sandboxes WHERE id = $1";
        let row = query(SQL)
            .bind(id.as_str())
            .fetch_optional(&self.pool)
            .await?;
        row.as_ref().map(from_row).transpose()
    }

    /// Those without an end.
    pub async fn live_sandboxes(&self) -> Result<Vec<SandboxRow>> {
        const SQL: &str = "SELECT id, tenant_id, template_id, metadata, created_at, ended_at,
                                  end_reason, end_detail
                           FROM sandboxes WHERE ended_at IS NULL ORDER BY created_at, id";
        query(SQL)
            .fetch_all(&self.pool)
            .await?
            .iter()
            .map(from_row)
            .collect()
    }

    /// Forgets sandboxes that ended before `before`; their use of templates stays counted.
    pub async fn prune_sandboxes(&self, before: UnixMillis) -> Result<u64> {
        again(|| self.count_and_prune(before)).await
    }

    async fn count_and_prune(&self, before: UnixMillis) -> Result<u64> {
        let mut transaction = self.pool.begin_alone().await?;
        query(
            "INSERT INTO template_use (template_id, spawned, last_spawned_at)
             SELECT template_id, COUNT(*), MAX(created_at) FROM sandboxes
             WHERE ended_at < $1 GROUP BY template_id
             ON CONFLICT (template_id) DO UPDATE SET
                 spawned = template_use.spawned + excluded.spawned,
                 last_spawned_at = CASE
                     WHEN excluded.last_spawned_at > template_use.last_spawned_at
                     THEN excluded.last_spawned_at ELSE template_use.last_spawned_at END",
        )
        .bind(row::column(before))
        .execute(&mut transaction)
        .await?;
        let pruned = query("DELETE FROM sandboxes WHERE ended_at < $1")
            .bind(row::column(before))
            .execute(&mut transaction)
            .await?;
        transaction.commit().await?;
        Ok(pruned)
    }

    pub async fn template_use(&self) -> Result<Vec<TemplateUse>> {
        query(
            "SELECT template_id, CAST(SUM(spawned) AS BIGINT) AS spawned, MAX(last_spawned_at) AS last_spawned_at
             FROM (
                 SELECT template_id, spawned, last_spawned_at FROM template_use
                 UNION ALL
                 SELECT template_id, COUNT(*) AS spawned, MAX(created_at) AS last_spawned_at
                 FROM sandboxes GROUP BY template_id
             ) AS counted
             GROUP BY template_id",
        )
        .fetch_all(&self.pool)
        .await?
        .iter()
        .map(|row| {
            Ok(TemplateUse {
                template: row::parsed(row, "sandboxes", "template_id")?,
                spawned: u64::try_from(row::number(row, "spawned")?).unwrap_or_default(),
                last_spawned_at: row::time(row, "last_spawned_at")?,
            })
        })
        .collect()
    }
}

impl SandboxRow {
    pub(crate) fn insert(&self) -> Result<Query> {
        let metadata = serde_json::to_string(&self.metadata).map_err(|_| Error::Corrupt {
            table: "sandboxes",
            column: "metadata",
        })?;
        let insert = query(
            "INSERT INTO sandboxes (id, tenant_id, template_id, metadata, created_at)
             VALUES ($1, $2, $3, $4, $5)",
        );
        Ok(insert
            .bind(self.id.as_str())
            .bind(self.tenant.as_str())
            .bind(self.template.as_str())
            .bind(metadata)
            .bind(row::column(self.created_at)))
    }
}

fn from_row(row: &Row) -> Result<SandboxRow> {
    let corrupt = |column| Error::Corrupt {
        table: "sandboxes",
        column,
    };
    let end = match row::optional_time(row, "ended_at")? {
        None => None,
        Some(at) => {
            let reason = row::optional_text(row, "end_reason")?.unwrap_or_default();
            Some(EndRow {
                at,
                reason: end_reason(&reason).ok_or(corrupt("end_reason"))?,
                detail: row::optional_text(row, "end_detail")?.unwrap_or_default(),
            })
        }
    };
    Ok(SandboxRow {
        id: row::parsed(row, "sandboxes", "id")?,
        tenant: row::parsed(row, "sandboxes", "tenant_id")?,
        template: row::parsed(row, "sandboxes", "template_id")?,
        metadata: serde_json::from_str(&row::text(row, "metadata")?)
            .map_err(|_| corrupt("metadata"))?,
        created_at: row::time(row, "created_at")?,
        end,
    })
}

fn end_reason(text: &str) -> Option<EndReason> {
    use EndReason::{CreateFailed, Died, Evicted, Expired, Killed, Lost};
    [Killed, Expired, Died, Evicted, CreateFailed, Lost]
        .into_iter()
        .find(|reason| reason.as_str() == text)
}
