use soulbox_types::{Limits, SandboxId, TemplateId, TenantId, Tier, UnixMillis};

use crate::{
    Result, Store,
    again::{again, in_order},
    query::{Query, query},
    row::{self, Row},
};

/// A name, or only an id, under which a tenant keeps snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotRow {
    pub template: TemplateId,
    pub tenant: TenantId,
    pub name: Option<String>,
    pub created_at: UnixMillis,
}

/// The files of a sandbox at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotBuildRow {
    /// A UUID.
    pub id: String,
    pub template: TemplateId,
    /// What the node calls it.
    pub image: TemplateId,
    pub source: SandboxId,
    /// The template at the bottom.
    pub base: TemplateId,
    /// Its build. `None`: it has only one, the server's own.
    pub base_build: Option<String>,
    pub limits: Limits,
    /// As in [`crate::BuildRow`].
    pub tier: Option<Tier>,
    pub created_at: UnixMillis,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotTagRow {
    pub template: TemplateId,
    pub tag: String,
    pub build: String,
    pub assigned_at: UnixMillis,
}

const UPSERT_TAG: &str =
    "INSERT INTO snapshot_tags (template_id, tag, build_id, assigned_at) VALUES ($1, $2, $3, $4)
     ON CONFLICT (template_id, tag)
     DO UPDATE SET build_id = excluded.build_id, assigned_at = excluded.assigned_at";

impl Store {
    pub async fn snapshots(&self) -> Result<Vec<SnapshotRow>> {
        let rows = query("SELECT template_id, tenant_id, name, created_at FROM snapshots")
            .fetch_all(&self.pool)
            .await?;
        let read = |row: &Row| {
            Ok(SnapshotRow {
                template: row::parsed(row, "snapshots", "template_id")?,
                tenant: row::parsed(row, "snapshots", "tenant_id")?,
                name: row::optional_text(row, "name")?,
                created_at: row::time(row, "created_at")?,
            })
        };
        rows.iter().map(read).collect()
    }

    /// Oldest first.
    pub async fn snapshot_builds(&self) -> Result<Vec<SnapshotBuildRow>> {
        const SQL: &str = "SELECT id, template_id, image, source, base, base_build, cpu_millis,
                                  memory_mib, disk_mib, pids, tier, created_at
                           FROM snapshot_builds ORDER BY created_at, id";
        let rows = query(SQL).fetch_all(&self.pool).await?;
        rows.iter().map(build_from_row).collect()
    }

    pub async fn snapshot_tags(&self) -> Result<Vec<SnapshotTagRow>> {
        let rows = query("SELECT template_id, tag, build_id, assigned_at FROM snapshot_tags")
            .fetch_all(&self.pool)
            .await?;
        let read = |row: &Row| {
            Ok(SnapshotTagRow {
                template: row::parsed(row, "snapshot_tags", "template_id")?,
                tag: row::text(row, "tag")?,
                build: row::text(row, "build_id")?,
                assigned_at: row::time(row, "assigned_at")?,
            })
        };
        rows.iter().map(read).collect()
    }

    pub async fn doomed_images(&self) -> Result<Vec<TemplateId>> {
        let rows = query("SELECT image FROM doomed_images")
            .fetch_all(&self.pool)
            .await?;
        let read = |row: &Row| row::parsed(row, "doomed_images", "image");
        rows.iter().map(read).collect()
    }

    /// The image goes as soon as nothing stands on it, unless it becomes a build before.
    pub async fn doom_image(&self, image: &TemplateId) -> Result<()> {
        query("INSERT INTO doomed_images (image) VALUES ($1) ON CONFLICT DO NOTHING")
            .bind(image.as_str())
            .execute(&self.pool)
            .await?;
        self.sync().await
    }

    /// The image is gone.
    pub async fn forget_image(&self, image: &TemplateId) -> Result<()> {
        forget(image).execute(&self.pool).await?;
        self.sync().await
    }

    /// Keeps an image that was doomed: as a build of `snapshot`, which is made when absent, with
    /// the tag pointing to it.
    pub async fn insert_snapshot_build(
        &self,
        snapshot: &SnapshotRow,
        build: &SnapshotBuildRow,
        tag: &SnapshotTagRow,
    ) -> Result<()> {
        again(|| self.write_snapshot_build(snapshot, build, tag)).await?;
        self.sync().await
    }

    async fn write_snapshot_build(
        &self,
        snapshot: &SnapshotRow,
        build: &SnapshotBuildRow,
        tag: &SnapshotTagRow,
    ) -> Result<()> {
        let mut transaction = self.pool.begin().await?;
        // Changes nothing when it is there, and keeps everybody else who makes or deletes builds of
        // it waiting.
        query(
            "INSERT INTO snapshots (template_id, tenant_id, name, created_at)
             VALUES ($1, $2, $3, $4)
             ON CONFLICT (template_id) DO UPDATE SET created_at = snapshots.created_at",
        )
        .bind(snapshot.template.as_str())
        .bind(snapshot.tenant.as_str())
        .bind(&snapshot.name)
        .bind(row::column(snapshot.created_at))
        .execute(&mut transaction)
        .await?;
        forget(&build.image).execute(&mut transaction).await?;
        query(
            "INSERT INTO snapshot_builds (id, template_id, image, source, base, base_build,
                                          cpu_millis, memory_mib, disk_mib, pids, tier,
                                          created_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
        )
        .bind(&build.id)
        .bind(build.template.as_str())
        .bind(build.image.as_str())
        .bind(build.source.as_str())
        .bind(build.base.as_str())
        .bind(&build.base_build)
        .bind(i64::from(build.limits.cpu_millis))
        .bind(i64::from(build.limits.memory_mib))
        .bind(i64::from(build.limits.disk_mib))
        .bind(i64::from(build.limits.pids))
        .bind(build.tier.map(Tier::as_str))
        .bind(row::column(build.created_at))
        .execute(&mut transaction)
        .await?;
        tag.upsert().execute(&mut transaction).await?;
        transaction.commit().await
    }

    /// All or none. A tag that exists moves.
    pub async fn tag_snapshot(&self, tags: &[SnapshotTagRow]) -> Result<()> {
        again(|| self.write_snapshot_tags(tags)).await?;
        self.sync().await
    }

    async fn write_snapshot_tags(&self, tags: &[SnapshotTagRow]) -> Result<()> {
        let mut transaction = self.pool.begin().await?;
        for tag in in_order(tags, |tag| &tag.tag) {
            tag.upsert().execute(&mut transaction).await?;
        }
        transaction.commit().await
    }

    pub async fn untag_snapshot(&self, template: &TemplateId, tags: &[String]) -> Result<()> {
        again(|| self.remove_snapshot_tags(template, tags)).await?;
        self.sync().await
    }

    async fn remove_snapshot_tags(&self, template: &TemplateId, tags: &[String]) -> Result<()> {
        let mut transaction = self.pool.begin().await?;
        for tag in in_order(tags, |tag| tag) {
            query("DELETE FROM snapshot_tags WHERE template_id = $1 AND tag = $2")
                .bind(template.as_str())
                .bind(tag)
                .execute(&mut transaction)
                .await?;
        }
        transaction.commit().await
    }

    /// Forgets it with all builds and tags, and dooms their images.
    pub async fn delete_snapshot(&self, template: &TemplateId) -> Result<()> {
        again(|| self.remove_snapshot(template)).await?;
        self.sync().await
    }

    async fn remove_snapshot(&self, template: &TemplateId) -> Result<()> {
        let mut transaction = self.pool.begin().await?;
        for sql in [
            // Only to keep others waiting, as above.
            "UPDATE snapshots SET created_at = created_at WHERE template_id = $1",
            "INSERT INTO doomed_images (image)
             SELECT image FROM snapshot_builds WHERE template_id = $1",
            "DELETE FROM snapshot_tags WHERE template_id = $1",
            "DELETE FROM snapshot_builds WHERE template_id = $1",
            "DELETE FROM snapshots WHERE template_id = $1",
        ] {
            query(sql)
                .bind(template.as_str())
                .execute(&mut transaction)
                .await?;
        }
        transaction.commit().await
    }
}

impl SnapshotTagRow {
    fn upsert(&self) -> Query {
        query(UPSERT_TAG)
            .bind(self.template.as_str())
            .bind(&self.tag)
            .bind(&self.build)
            .bind(row::column(self.assigned_at))
    }
}

fn forget(image: &TemplateId) -> Query {
    query("DELETE FROM doomed_images WHERE image = $1").bind(image.as_str())
}

fn build_from_row(row: &Row) -> Result<SnapshotBuildRow> {
    const TABLE: &str = "snapshot_builds";
    Ok(SnapshotBuildRow {
        id: row::text(row, "id")?,
        template: row::parsed(row, TABLE, "template_id")?,
        image: row::parsed(row, TABLE, "image")?,
        source: row::parsed(row, TABLE, "source")?,
        base: row::parsed(row, TABLE, "base")?,
        base_build: row::optional_text(row, "base_build")?,
        limits: row::limits(row, TABLE)?,
        tier: row::optional_tier(row, TABLE)?,
        created_at: row::time(row, "created_at")?,
    })
}
