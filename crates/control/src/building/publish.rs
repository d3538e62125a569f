//! Showing a template to others, and deleting it.

use std::sync::Arc;

use soulbox_store::BuildStatus;
use soulbox_types::UnixMillis;
use tracing::Instrument;

use super::templates::Built;
use crate::{
    Control, Error, Reference, Result, Template, Tenant,
    committed::{follow, held},
    snapshot,
    template::Found,
};

/// Under which names a published template is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// `<slug>/<name>`.
    InNamespace,
    /// Also by its bare name.
    Everywhere,
}

impl Control {
    /// `None`: nobody else may use it any more.
    pub async fn publish_template(
        self: &Arc<Self>,
        tenant: &Tenant,
        reference: &Reference,
        published: Option<Published>,
    ) -> Result<Template> {
        let (control, tenant, reference) = (Arc::clone(self), tenant.clone(), reference.clone());
        let work = async move {
            let _writing = control.snapshots.writing.lock().await;
            let built = control.own_template(&tenant, &reference)?;
            let global = match published {
                None => None,
                Some(Published::InNamespace) => built.row.global_name.clone(),
                Some(Published::Everywhere) => Some(control.claim_global(&built)?),
            };
            let (id, public) = (&built.row.id, published.is_some());
            let written = control
                .store
                .publish_template(id, public, global.as_deref())
                .await;
            let published = || control.templates.publish(id, public, global.as_deref());
            let built = follow(written, published)?;
            let built = built.ok_or(Error::TemplateNotFound(reference.name))?;
            Ok(control.describe(&built))
        };
        self.finish(work.in_current_span()).await
    }

    /// Its names are free at once. Refused while sandboxes run on it; what snapshots stand on
    /// stays on disk until they are gone.
    pub(crate) async fn delete_built(
        self: &Arc<Self>,
        tenant: &Tenant,
        reference: &Reference,
    ) -> Result<()> {
        let (control, tenant, reference) = (Arc::clone(self), tenant.clone(), reference.clone());
        let work = async move {
            let writing = control.snapshots.writing.lock().await;
            let built = control.own_template(&tenant, &reference)?;
            if let Some(users) = snapshot::described(&control.users_of_template(&built)) {
                let template = reference.name;
                return Err(Error::TemplateInUse { template, users });
            }
            let at = UnixMillis::now();
            let deleted = held(control.store.delete_template(&built.row.id, at).await)?;
            control.templates.delete(&built.row.id, at);
            for build in &built.builds {
                if build.status == BuildStatus::Waiting {
                    control
                        .cancel_waiting(build, "its template was deleted")
                        .await?;
                }
            }
            drop(writing);
            for build in &built.builds {
                if build.status == BuildStatus::Building {
                    control.stop_build(&build.id).await;
                }
            }
            tracing::info!(template = %built.row.id, "template deleted");
            Ok(deleted?)
        };
        self.finish(work.in_current_span()).await?;
        self.collect_later();
        Ok(())
    }

    /// The tenant's own, whatever the tag.
    pub(crate) fn own_template(&self, tenant: &Tenant, reference: &Reference) -> Result<Built> {
        let name = || reference.name.clone();
        match self.look_up_template(tenant, reference)? {
            None => Err(Error::TemplateNotFound(name())),
            Some(Found::Built(built)) if built.owned_by(tenant) => Ok(*built),
            Some(Found::Built(built)) if self.keys.knows(&built.row.tenant) => {
                Err(Error::TemplateOfAnother(name()))
            }
            Some(Found::Built(_) | Found::BuiltIn(_)) => Err(Error::TemplateForbidden(name())),
            Some(Found::Snapshot(_)) => Err(Error::Invalid(format!(
                "'{}' is a snapshot, not a template that was built",
                reference.name
            ))),
        }
    }

    fn claim_global(&self, built: &Built) -> Result<String> {
        let name = built.row.name.clone().unwrap_or_default();
        let other = self.templates.by_global_name(&name);
        let taken = other.is_some_and(|other| other.row.id != built.row.id);
        if taken || self.catalogue.named(&name) {
            return Err(Error::NameTaken {
                name,
                by: "a public template",
            });
        }
        Ok(name)
    }
}
