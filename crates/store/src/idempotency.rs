use soulbox_types::{SandboxId, TenantId, UnixMillis};

use crate::{
    Result, SandboxRow, Store,
    again::again,
    query::query,
    row::{self, Row},
};

/// A request that its client may send again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyRecord {
    pub tenant: TenantId,
    pub key: String,
    pub fingerprint: String,
}

/// What is remembered of an earlier request with the same key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyRow {
    pub fingerprint: String,
    pub sandbox: SandboxId,
    /// `None`: it is under way, or its outcome was never learnt.
    pub response: Option<String>,
    pub created_at: UnixMillis,
}

/// Whether a request with an idempotency key is the first one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Started {
    First,
    Repeated(IdempotencyRow),
}

const FIND: &str = "SELECT fingerprint, sandbox_id, response, created_at FROM idempotency
                    WHERE tenant_id = $1 AND key = $2";

impl Store {
    /// The earlier request with this key, unless it was made before `forget_before`.
    pub async fn find_idempotency(
        &self,
        record: &IdempotencyRecord,
        forget_before: UnixMillis,
    ) -> Result<Option<IdempotencyRow>> {
        let found = query(FIND)
            .bind(record.tenant.as_str())
            .bind(&record.key)
            .fetch_optional(&self.pool)
            .await?;
        let found = found.as_ref().map(from_row).transpose()?;
        Ok(found.filter(|row| row.created_at >= forget_before))
    }

    /// Records the sandbox and the key together, so that a crash cannot separate them.
    /// With `Repeated` nothing was written. Records made before `forget_before` do not count.
    pub async fn insert_sandbox_once(
        &self,
        sandbox: &SandboxRow,
        record: &IdempotencyRecord,
        forget_before: UnixMillis,
    ) -> Result<Started> {
        let started = loop {
            let tried = again(|| self.write_once(sandbox, record, forget_before)).await?;
            // A record that was there and is gone was forgotten just then: its key is free.
            if let Some(started) = tried {
                break started;
            }
        };
        if started == Started::First {
            self.note();
        }
        Ok(started)
    }

    /// `None` when another request's record went away meanwhile.
    async fn write_once(
        &self,
        sandbox: &SandboxRow,
        record: &IdempotencyRecord,
        forget_before: UnixMillis,
    ) -> Result<Option<Started>> {
        let mut transaction = self.pool.begin().await?;
        // The first statement writes, so that in SQLite two of these never both read "not there". In
        // PostgreSQL it is the key that lets one in, and the others wait for what becomes of it.
        query("DELETE FROM idempotency WHERE tenant_id = $1 AND key = $2 AND created_at < $3")
            .bind(record.tenant.as_str())
            .bind(&record.key)
            .bind(row::column(forget_before))
            .execute(&mut transaction)
            .await?;
        let inserted = query(
            "INSERT INTO idempotency (tenant_id, key, fingerprint, sandbox_id, created_at)
             VALUES ($1, $2, $3, $4, $5) ON CONFLICT (tenant_id, key) DO NOTHING",
        )
        .bind(record.tenant.as_str())
        .bind(&record.key)
        .bind(&record.fingerprint)
        .bind(sandbox.id.as_str())
        .bind(row::column(sandbox.created_at))
        .execute(&mut transaction)
        .await?;
        if inserted == 0 {
            let existing = query(FIND)
                .bind(record.tenant.as_str())
                .bind(&record.key)
                .fetch_optional(&mut transaction)
                .await?;
            let existing = existing.as_ref().map(from_row).transpose()?;
            return Ok(existing.map(Started::Repeated));
        }
        sandbox.insert()?.execute(&mut transaction).await?;
        transaction.commit().await?;
        Ok(Some(Started::First))
    }

    /// The request with this sandbox succeeded; this is the answer.
    pub async fn complete_idempotency(&self, sandbox: &SandboxId, response: &str) -> Result<()> {
        query("UPDATE idempotency SET response = $2 WHERE sandbox_id = $1")
            .bind(sandbox.as_str())
            .bind(response)
            .execute(&self.pool)
            .await?;
        self.note();
        Ok(())
    }

    /// The request with this sandbox failed for certain: its key may be used again.
    pub async fn forget_idempotency(&self, sandbox: &SandboxId) -> Result<()> {
        query("DELETE FROM idempotency WHERE sandbox_id = $1")
            .bind(sandbox.as_str())
            .execute(&self.pool)
            .await?;
        self.note();
        Ok(())
    }

    /// Sandboxes of requests whose outcome is not recorded.
    pub async fn open_idempotency(&self) -> Result<Vec<SandboxId>> {
        query("SELECT sandbox_id FROM idempotency WHERE response IS NULL")
            .fetch_all(&self.pool)
            .await?
            .iter()
            .map(|row| row::parsed(row, "idempotency", "sandbox_id"))
            .collect()
    }

    pub async fn prune_idempotency(&self, before: UnixMillis) -> Result<u64> {
        let result = query("DELETE FROM idempotency WHERE created_at < $1")
            .bind(row::column(before))
            .execute(&self.pool)
            .await?;
        Ok(result)
    }
}

fn from_row(row: &Row) -> Result<IdempotencyRow> {
    Ok(IdempotencyRow {
        fingerprint: row::text(row, "fingerprint")?,
        sandbox: row::parsed(row, "idempotency", "sandbox_id")?,
        response: row::optional_text(row, "response")?,
        created_at: row::time(row, "created_at")?,
    })
}
