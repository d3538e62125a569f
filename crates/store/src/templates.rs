use soulbox_types::{TemplateId, TenantId, UnixMillis};

use crate::{
    Result, Store,
    again::{again, in_order},
    query::{Query, query},
    row::{self, Row},
};

/// A template that is built, once or many times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateRow {
    pub id: TemplateId,
    pub tenant: TenantId,
    /// Without the namespace. `None`: it is deleted, and builds are left on which something stands.
    pub name: Option<String>,
    /// Under which everybody finds it, without a namespace.
    pub global_name: Option<String>,
    pub public: bool,
    pub created_at: UnixMillis,
    pub deleted_at: Option<UnixMillis>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateTagRow {
    pub template: TemplateId,
    pub tag: String,
    pub build: String,
    pub assigned_at: UnixMillis,
}

const UPSERT_TAG: &str =
    "INSERT INTO template_tags (template_id, tag, build_id, assigned_at) VALUES ($1, $2, $3, $4)
     ON CONFLICT (template_id, tag)
     DO UPDATE SET build_id = excluded.build_id, assigned_at = excluded.assigned_at";

impl Store {
    /// Also those that are deleted.
    pub async fn templates(&self) -> Result<Vec<TemplateRow>> {
        const SQL: &str = "SELECT id, tenant_id, name, global_name, public, created_at, deleted_at
                           FROM templates ORDER BY created_at, id";
        let rows = query(SQL).fetch_all(&self.pool).await?;
        rows.iter().map(from_row).collect()
    }

    pub async fn template_tags(&self) -> Result<Vec<TemplateTagRow>> {
        const SQL: &str = "SELECT template_id, tag, build_id, assigned_at FROM template_tags";
        let rows = query(SQL).fetch_all(&self.pool).await?;
        let read = |row: &Row| {
            Ok(TemplateTagRow {
                template: row::parsed(row, "template_tags", "template_id")?,
                tag: row::text(row, "tag")?,
                build: row::text(row, "build_id")?,
                assigned_at: row::time(row, "assigned_at")?,
            })
        };
        rows.iter().map(read).collect()
    }

    /// One that is not built yet. Nothing happens when it is there.
    pub async fn insert_template(&self, template: &TemplateRow) -> Result<()> {
        again(|| template.insert().execute(&self.pool)).await?;
        self.sync().await
    }

    /// All or none. A tag that exists moves.
    pub async fn tag_template(&self, tags: &[TemplateTagRow]) -> Result<()> {
        again(|| self.write_template_tags(tags)).await?;
        self.sync().await
    }

    async fn write_template_tags(&self, tags: &[TemplateTagRow]) -> Result<()> {
        let mut transaction = self.pool.begin().await?;
        for tag in in_order(tags, |tag| &tag.tag) {
            tag.upsert().execute(&mut transaction).await?;
        }
        transaction.commit().await
    }

    pub async fn untag_template(&self, template: &TemplateId, tags: &[String]) -> Result<()> {
        again(|| self.remove_template_tags(template, tags)).await?;
        self.sync().await
    }

    async fn remove_template_tags(&self, template: &TemplateId, tags: &[String]) -> Result<()> {
        let mut transaction = self.pool.begin().await?;
        for tag in in_order(tags, |tag| tag) {
            query("DELETE FROM template_tags WHERE template_id = $1 AND tag = $2")
                .bind(template.as_str())
                .bind(tag)
                .execute(&mut transaction)
                .await?;
        }
        transaction.commit().await
    }

    pub async fn publish_template(
        &self,
        template: &TemplateId,
        public: bool,
        global_name: Option<&str>,
    ) -> Result<()> {
        query("UPDATE templates SET public = $2, global_name = $3 WHERE id = $1")
            .bind(template.as_str())
            .bind(i64::from(public))
            .bind(global_name)
            .execute(&self.pool)
            .await?;
        self.sync().await
    }

    /// Frees its names and tags. Its builds stay until they are removed one by one.
    pub async fn delete_template(&self, template: &TemplateId, at: UnixMillis) -> Result<()> {
        again(|| self.remove_template(template, at)).await?;
        self.sync().await
    }

    async fn remove_template(&self, template: &TemplateId, at: UnixMillis) -> Result<()> {
        let mut transaction = self.pool.begin().await?;
        query("DELETE FROM template_tags WHERE template_id = $1")
            .bind(template.as_str())
            .execute(&mut transaction)
            .await?;
        query(
            "UPDATE templates SET name = NULL, global_name = NULL, public = 0, deleted_at = $2
             WHERE id = $1",
        )
        .bind(template.as_str())
        .bind(row::column(at))
        .execute(&mut transaction)
        .await?;
        transaction.commit().await
    }

    /// Of one that is deleted and has no builds any more.
    pub async fn forget_template(&self, template: &TemplateId) -> Result<()> {
        query("DELETE FROM templates WHERE id = $1 AND deleted_at IS NOT NULL")
            .bind(template.as_str())
            .execute(&self.pool)
            .await?;
        self.sync().await
    }
}

impl TemplateRow {
    /// Nothing happens when it is there.
    pub(crate) fn insert(&self) -> Query {
        query(
            "INSERT INTO templates (id, tenant_id, name, global_name, public, created_at,
                                    deleted_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO NOTHING",
        )
        .bind(self.id.as_str())
        .bind(self.tenant.as_str())
        .bind(&self.name)
        .bind(&self.global_name)
        .bind(i64::from(self.public))
        .bind(row::column(self.created_at))
        .bind(self.deleted_at.map(row::column))
    }
}

impl TemplateTagRow {
    pub(crate) fn upsert(&self) -> Query {
        query(UPSERT_TAG)
            .bind(self.template.as_str())
            .bind(&self.tag)
            .bind(&self.build)
            .bind(row::column(self.assigned_at))
    }
}

fn from_row(row: &Row) -> Result<TemplateRow> {
    Ok(TemplateRow {
        id: row::parsed(row, "templates", "id")?,
        tenant: row::parsed(row, "templates", "tenant_id")?,
        name: row::optional_text(row, "name")?,
        global_name: row::optional_text(row, "global_name")?,
        public: row::number(row, "public")? != 0,
        created_at: row::time(row, "created_at")?,
        deleted_at: row::optional_time(row, "deleted_at")?,
    })
}
