//! From the names that a build starts from to what they mean.

use std::sync::Arc;

use futures_util::FutureExt;
use soulbox_build::{Base, Stage};
use soulbox_template::Template as Description;

use super::{
    definition::{BaseDefinition, BuildDefinition},
    scheduler::Stages,
    templates::BuildHold,
};
use crate::{Control, Error, Result, Tenant};

/// A template to start from.
struct Below {
    description: Arc<Description>,
    hold: Option<BuildHold>,
    /// By which the same is found again later.
    exact: String,
}

impl Control {
    /// Of a definition that then says exactly which templates it means. Those of the server's own that
    /// are not there yet are built first.
    pub(crate) fn stages(
        self: &Arc<Self>,
        tenant: &Tenant,
        definition: &mut BuildDefinition,
    ) -> Stages {
        let resolved = self.resolve_stages(tenant, definition);
        let Err(Error::TemplateNotBuilt(_)) = resolved else {
            return std::future::ready(resolved).boxed();
        };
        let (control, tenant, mut definition) =
            (Arc::downgrade(self), tenant.clone(), definition.clone());
        async move {
            for _ in 0..=definition.stages.len() {
                let control = control.upgrade().ok_or(Error::NoBuilder)?;
                let patience = control.scheduler()?.config.max_duration;
                match control.resolve_stages(&tenant, &mut definition) {
                    Err(Error::TemplateNotBuilt(name)) => {
                        control.await_builtin(&name, patience).await?;
                    }
                    resolved => return resolved,
                }
            }
            Err(Error::Internal("a template is gone as soon as it is built"))
        }
        .boxed()
    }

    fn resolve_stages(
        &self,
        tenant: &Tenant,
        definition: &mut BuildDefinition,
    ) -> Result<(Vec<Stage>, Vec<BuildHold>)> {
        let (mut stages, mut holds) = (Vec::new(), Vec::new());
        for stage in &mut definition.stages {
            let base = match &mut stage.base {
                BaseDefinition::Image {
                    reference,
                    credentials,
                } => Base::Image {
                    reference: reference.clone(),
                    credentials: credentials.clone(),
                },
                BaseDefinition::Template(name) => {
                    let below = self.template_below(tenant, name)?;
                    *name = below.exact;
                    holds.extend(below.hold);
                    Base::Template(below.description)
                }
                BaseDefinition::Stage(earlier) => Base::Stage(*earlier),
                BaseDefinition::Archive(hash) => Base::Archive { hash: hash.clone() },
            };
            stages.push(Stage {
                base,
                steps: stage.steps.clone(),
                lanes: Vec::new(),
            });
        }
        Ok((stages, holds))
    }

    fn template_below(&self, tenant: &Tenant, name: &str) -> Result<Below> {
        let scheduler = self.scheduler()?;
        let origin = self.origin(tenant, name)?;
        if origin.image.is_some() {
            return Err(Error::Invalid(format!(
                "'{name}' is a snapshot: a template is built from templates and images only"
            )));
        }
        let templates = &scheduler.config.templates;
        let (description, exact) = match &origin.build {
            Some(build) => (
                templates.build(build),
                format!("{}:{build}", origin.template),
            ),
            None => (templates.own(&origin.template), origin.template.to_string()),
        };
        Ok(Below {
            description: description.ok_or_else(|| Error::TemplateNotFound(name.to_owned()))?,
            hold: origin.build_hold,
            exact,
        })
    }
}
