use std::str::FromStr;

use soulbox_types::{Limits, TemplateId, Tier, UnixMillis};

use crate::{
    Error, Result, Store, TemplateRow, TemplateTagRow,
    again::{again, in_order},
    query::query,
    row::{self, Row},
};

const TABLE: &str = "template_builds";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildStatus {
    /// Asked for, not started.
    Waiting,
    /// Started; perhaps others must end first.
    Building,
    Ready,
    Error,
}

/// Why there is no template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildReason {
    pub step: String,
    pub message: String,
}

/// One build of a template, without what is to be built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildRow {
    /// A UUID.
    pub id: String,
    pub template: TemplateId,
    pub status: BuildStatus,
    /// Those that mean it once it is ready.
    pub tags: Vec<String>,
    pub limits: Limits,
    /// Of sandboxes that are made of it without saying which.
    pub tier: Option<Tier>,
    /// Of which definition, for a template of the server's own.
    pub version: Option<String>,
    pub reason: Option<BuildReason>,
    pub created_at: UnixMillis,
    pub started_at: Option<UnixMillis>,
    pub finished_at: Option<UnixMillis>,
    /// It was ready, and its files are gone.
    pub removed: bool,
}

impl BuildStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Building => "building",
            Self::Ready => "ready",
            Self::Error => "error",
        }
    }

    pub fn is_final(self) -> bool {
        matches!(self, Self::Ready | Self::Error)
    }
}

impl FromStr for BuildStatus {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Waiting, Self::Building, Self::Ready, Self::Error]
            .into_iter()
            .find(|status| status.as_str() == text)
            .ok_or(())
    }
}

impl Store {
    /// Oldest first.
    pub async fn builds(&self) -> Result<Vec<BuildRow>> {
        const SQL: &str = "SELECT id, template_id, status, tags, cpu_millis, memory_mib, disk_mib,
                                  pids, tier, version, reason_step, reason_message,
                                  created_at, started_at, finished_at, removed
                           FROM template_builds ORDER BY created_at, id";
        let rows = query(SQL).fetch_all(&self.pool).await?;
        rows.iter().map(from_row).collect()
    }

    /// The template is made when it is absent.
    pub async fn insert_build(&self, template: &TemplateRow, build: &BuildRow) -> Result<()> {
        again(|| self.write_build(template, build)).await?;
        self.sync().await
    }

    async fn write_build(&self, template: &TemplateRow, build: &BuildRow) -> Result<()> {
        let mut transaction = self.pool.begin().await?;
        template.insert().execute(&mut transaction).await?;
        query(
            "INSERT INTO template_builds (id, template_id, status, tags, cpu_millis, memory_mib,
                                          disk_mib, pids, tier, version, created_at, started_at,
                                          removed)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 0)",
        )
        .bind(&build.id)
        .bind(build.template.as_str())
        .bind(build.status.as_str())
        .bind(row::json(TABLE, "tags", &build.tags)?)
        .bind(i64::from(build.limits.cpu_millis))
        .bind(i64::from(build.limits.memory_mib))
        .bind(i64::from(build.limits.disk_mib))
        .bind(i64::from(build.limits.pids))
        .bind(build.tier.map(Tier::as_str))
        .bind(&build.version)
        .bind(row::column(build.created_at))
        .bind(build.started_at.map(row::column))
        .execute(&mut transaction)
        .await?;
        transaction.commit().await
    }

    /// From waiting to building. `false` when it was not waiting, and nothing was written.
    pub async fn start_build(&self, id: &str, request: &str, at: UnixMillis) -> Result<bool> {
        let started = query(
            "UPDATE template_builds SET status = $2, request = $3, started_at = $4
             WHERE id = $1 AND status = $5",
        )
        .bind(id)
        .bind(BuildStatus::Building.as_str())
        .bind(request)
        .bind(row::column(at))
        .bind(BuildStatus::Waiting.as_str())
        .execute(&self.pool)
        .await?;
        if started == 1 {
            self.sync().await?;
        }
        Ok(started == 1)
    }

    /// As it was sealed when the build was started.
    pub async fn build_request(&self, id: &str) -> Result<Option<String>> {
        let row = query("SELECT request FROM template_builds WHERE id = $1")
            .bind(id)
            .fetch_optional(&self.pool)
            .await?;
        Ok(match row {
            None => None,
            Some(row) => row::optional_text(&row, "request")?,
        })
    }

    /// Its end, with the tags that mean it from now on. What was to be built is forgotten.
    pub async fn finish_build(
        &self,
        id: &str,
        reason: Option<&BuildReason>,
        tags: &[TemplateTagRow],
        at: UnixMillis,
    ) -> Result<()> {
        again(|| self.write_end(id, reason, tags, at)).await?;
        self.sync().await
    }

    async fn write_end(
        &self,
        id: &str,
        reason: Option<&BuildReason>,
        tags: &[TemplateTagRow],
        at: UnixMillis,
    ) -> Result<()> {
        let status = reason.map_or(BuildStatus::Ready, |_| BuildStatus::Error);
        let mut transaction = self.pool.begin().await?;
        query(
            "UPDATE template_builds SET status = $2, reason_step = $3, reason_message = $4,
                                        finished_at = $5, request = NULL
             WHERE id = $1",
        )
        .bind(id)
        .bind(status.as_str())
        .bind(reason.map(|reason| reason.step.as_str()))
        .bind(reason.map(|reason| reason.message.as_str()))
        .bind(row::column(at))
        .execute(&mut transaction)
        .await?;
        for tag in in_order(tags, |tag| &tag.tag) {
            tag.upsert().execute(&mut transaction).await?;
        }
        transaction.commit().await
    }

    /// Its files are gone.
    pub async fn mark_build_removed(&self, id: &str) -> Result<()> {
        query("UPDATE template_builds SET removed = 1 WHERE id = $1")
            .bind(id)
            .execute(&self.pool)
            .await?;
        self.sync().await
    }

    /// Of one that no tag means.
    pub async fn forget_build(&self, id: &str) -> Result<()> {
        query("DELETE FROM template_builds WHERE id = $1")
            .bind(id)
            .execute(&self.pool)
            .await?;
        self.sync().await
    }
}

fn from_row(row: &Row) -> Result<BuildRow> {
    let step = row::optional_text(row, "reason_step")?;
    let message = row::optional_text(row, "reason_message")?;
    let status = row::text(row, "status")?;
    Ok(BuildRow {
        id: row::text(row, "id")?,
        template: row::parsed(row, TABLE, "template_id")?,
        status: status.parse().map_err(|()| Error::Corrupt {
            table: TABLE,
            column: "status",
        })?,
        tags: row::from_json(row, TABLE, "tags")?,
        limits: row::limits(row, TABLE)?,
        tier: row::optional_tier(row, TABLE)?,
        version: row::optional_text(row, "version")?,
        reason: step
            .zip(message)
            .map(|(step, message)| BuildReason { step, message }),
        created_at: row::time(row, "created_at")?,
        started_at: row::optional_time(row, "started_at")?,
        finished_at: row::optional_time(row, "finished_at")?,
        removed: row::number(row, "removed")? != 0,
    })
}
