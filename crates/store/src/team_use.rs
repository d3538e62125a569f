use soulbox_types::{SandboxId, TenantId, UnixMillis};

use crate::{Result, Store, query::query, row};

/// From when to when a sandbox lived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSpan {
    pub sandbox: SandboxId,
    pub from: UnixMillis,
    pub to: Option<UnixMillis>,
}

/// A moment at which a sandbox was paused or resumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PauseChange {
    pub sandbox: SandboxId,
    pub at: UnixMillis,
    pub paused: bool,
}

impl Store {
    /// The tenant's sandboxes that lived between the two, newest first, at most `most`. Those that
    /// never came up do not count.
    pub async fn run_spans(
        &self,
        tenant: &TenantId,
        start: UnixMillis,
        end: UnixMillis,
        most: u32,
    ) -> Result<Vec<RunSpan>> {
        query(
            "SELECT id, created_at, ended_at FROM sandboxes
             WHERE tenant_id = $1 AND created_at <= $3
                 AND (ended_at IS NULL OR (ended_at >= $2 AND end_reason <> 'create_failed'))
             ORDER BY created_at DESC LIMIT $4",
        )
        .bind(tenant.as_str())
        .bind(row::column(start))
        .bind(row::column(end))
        .bind(i64::from(most))
        .fetch_all(&self.pool)
        .await?
        .iter()
        .map(|row| {
            Ok(RunSpan {
                sandbox: row::parsed(row, "sandboxes", "id")?,
                from: row::time(row, "created_at")?,
                to: row::optional_time(row, "ended_at")?,
            })
        })
        .collect()
    }

    /// Pauses and resumes of the tenant until `end`, oldest first, at most the newest `most`.
    pub async fn pause_changes(
        &self,
        tenant: &TenantId,
        end: UnixMillis,
        most: u32,
    ) -> Result<Vec<PauseChange>> {
        let rows = query(
            "SELECT sandbox_id, kind, at FROM events
             WHERE tenant_id = $1 AND at <= $2 AND kind IN ('paused', 'resumed')
             ORDER BY at DESC, number DESC LIMIT $3",
        )
        .bind(tenant.as_str())
        .bind(row::column(end))
        .bind(i64::from(most))
        .fetch_all(&self.pool)
        .await?;
        rows.iter()
            .rev()
            .map(|row| {
                Ok(PauseChange {
                    sandbox: row::parsed(row, "events", "sandbox_id")?,
                    at: row::time(row, "at")?,
                    paused: row::text(row, "kind")? == "paused",
                })
            })
            .collect()
    }
}
