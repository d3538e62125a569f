//! Tags of templates and snapshots: each means one build, and the latest assignment wins.

use std::sync::Arc;

use soulbox_store::{SnapshotTagRow, TemplateTagRow};
use soulbox_types::UnixMillis;
use tracing::Instrument;

use crate::{
    Control, Error, Reference, Result, Tenant, committed::follow, reference::DEFAULT_TAG,
    snapshot::not_a_uuid, template::Found,
};

const MOST_TAGS: usize = 1000;

impl Control {
    /// Lets more tags mean the build that `target` means. Answers the build's id.
    pub async fn assign_tags(
        self: &Arc<Self>,
        tenant: &Tenant,
        target: &str,
        tags: Vec<String>,
    ) -> Result<String> {
        let tags: Vec<_> = tags.into_iter().map(not_a_uuid).collect::<Result<_>>()?;
        let reference = Reference::parse(target)?;
        let (control, tenant) = (Arc::clone(self), tenant.clone());
        let work = async move {
            let _writing = control.snapshots.writing.lock().await;
            match control.look_up_template(&tenant, &reference)? {
                Some(Found::Snapshot(_)) => control.tag_snapshot(&tenant, &reference, tags).await,
                _ => control.tag_template(&tenant, &reference, tags).await,
            }
        };
        self.finish(work.in_current_span()).await
    }

    /// The builds stay until nothing stands on them.
    pub async fn remove_tags(
        self: &Arc<Self>,
        tenant: &Tenant,
        reference: &Reference,
        tags: Vec<String>,
    ) -> Result<()> {
        let (control, tenant, reference) = (Arc::clone(self), tenant.clone(), reference.clone());
        let work = async move {
            let _writing = control.snapshots.writing.lock().await;
            if let Some(Found::Snapshot(_)) = control.look_up_template(&tenant, &reference)? {
                let template = control.own_snapshot(&tenant, &reference)?.row.template;
                let written = control.store.untag_snapshot(&template, &tags).await;
                follow(written, || control.snapshots.untag(&template, &tags))
            } else {
                let template = control.own_template(&tenant, &reference)?.row.id;
                let written = control.store.untag_template(&template, &tags).await;
                follow(written, || control.templates.untag(&template, &tags))
            }
        };
        self.finish(work.in_current_span()).await
    }

    /// With the catalog's lock held, as below.
    async fn tag_snapshot(
        &self,
        tenant: &Tenant,
        reference: &Reference,
        tags: Vec<String>,
    ) -> Result<String> {
        let entry = self.own_snapshot(tenant, reference)?;
        let tag = reference.tag.as_deref().unwrap_or(DEFAULT_TAG);
        let build = entry.build(tag).ok_or_else(|| unknown(reference, tag))?;
        check_number(entry.tags.len() + tags.len())?;
        let assigned_at = UnixMillis::now();
        let rows = tags.into_iter().map(|tag| SnapshotTagRow {
            template: entry.row.template.clone(),
            tag,
            build: build.id.clone(),
            assigned_at,
        });
        let rows: Vec<_> = rows.collect();
        let written = self.store.tag_snapshot(&rows).await;
        follow(written, || self.snapshots.tag(rows))?;
        Ok(build.id.clone())
    }

    async fn tag_template(
        &self,
        tenant: &Tenant,
        reference: &Reference,
        tags: Vec<String>,
    ) -> Result<String> {
        let built = self.own_template(tenant, reference)?;
        let tag = reference.tag.as_deref().unwrap_or(DEFAULT_TAG);
        let build = built.usable(tag).ok_or_else(|| unknown(reference, tag))?;
        check_number(built.tags.len() + tags.len())?;
        let assigned_at = UnixMillis::now();
        let rows = tags.into_iter().map(|tag| TemplateTagRow {
            template: built.row.id.clone(),
            tag,
            build: build.id.clone(),
            assigned_at,
        });
        let rows: Vec<_> = rows.collect();
        let written = self.store.tag_template(&rows).await;
        follow(written, || self.templates.tag(rows))?;
        Ok(build.id.clone())
    }
}

fn check_number(tags: usize) -> Result<()> {
    if tags > MOST_TAGS {
        let message = format!("a template has at most {MOST_TAGS} tags: remove some");
        return Err(Error::Invalid(message));
    }
    Ok(())
}

fn unknown(reference: &Reference, tag: &str) -> Error {
    Error::TagNotFound {
        template: reference.name.clone(),
        tag: tag.to_owned(),
    }
}
