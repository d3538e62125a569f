//! What sandboxes are made from: the server's templates, the tenants' own, and their snapshots.

use std::sync::Arc;

use soulbox_store::{BuildReason, BuildRow, BuildStatus};
use soulbox_types::{Limits, TemplateId, Tier, UnixMillis};
use uuid::Uuid;

use crate::{
    Control, Error, Reference, Result, SERVER_TENANT, TemplateInfo, Tenant,
    building::{BuildHold, Built},
    reference::DEFAULT_TAG,
    snapshots::{CatalogEntry, ImageHold},
};

/// A template, or a snapshot, as tenants see it.
#[derive(Debug, Clone)]
pub struct Template {
    pub info: TemplateInfo,
    /// Of the build in `info`.
    pub status: BuildStatus,
    /// The slug of the tenant whose it is; `None` for the server's own templates.
    pub namespace: Option<String>,
    /// Every one by which it can be asked for, with the namespace where it has one.
    pub names: Vec<String>,
    /// Oldest first.
    pub builds: Vec<TemplateBuild>,
    /// Each with its build and since when it means that.
    pub tags: Vec<(String, String, UnixMillis)>,
    pub spawn_count: u64,
    pub last_spawned_at: Option<UnixMillis>,
}

#[derive(Debug, Clone)]
pub struct TemplateBuild {
    /// A UUID.
    pub id: String,
    /// What sandboxes made from a snapshot stand on.
    pub image: Option<TemplateId>,
    pub limits: Limits,
    pub status: BuildStatus,
    pub reason: Option<BuildReason>,
    pub created_at: UnixMillis,
    pub updated_at: UnixMillis,
    pub finished_at: Option<UnixMillis>,
}

impl TemplateBuild {
    /// One that needed no building.
    pub(crate) fn given(
        id: &str,
        image: Option<TemplateId>,
        limits: Limits,
        at: UnixMillis,
    ) -> Self {
        Self {
            id: id.to_owned(),
            image,
            limits,
            status: BuildStatus::Ready,
            reason: None,
            created_at: at,
            updated_at: at,
            finished_at: Some(at),
        }
    }
}

impl From<&BuildRow> for TemplateBuild {
    fn from(row: &BuildRow) -> Self {
        Self {
            id: row.id.clone(),
            image: None,
            limits: row.limits,
            status: row.status,
            reason: row.reason.clone(),
            created_at: row.created_at,
            updated_at: row.finished_at.or(row.started_at).unwrap_or(row.created_at),
            finished_at: row.finished_at,
        }
    }
}

/// What a sandbox is made from.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) template: TemplateId,
    pub(crate) build: Option<String>,
    pub(crate) alias: Option<String>,
    pub(crate) limits: Limits,
    pub(crate) tier: Option<Tier>,
    pub(crate) image: Option<TemplateId>,
    pub(crate) image_hold: Option<ImageHold>,
    pub(crate) build_hold: Option<BuildHold>,
}

pub(crate) enum Found {
    /// One that the server has without building it.
    BuiltIn(Box<TemplateInfo>),
    Built(Box<Built>),
    Snapshot(Box<CatalogEntry>),
}

impl Control {
    /// The tenant's own, newest first, and the server's.
    pub fn templates(&self, tenant: &Tenant) -> Vec<Template> {
        let mut own = self.templates.of(&tenant.id);
        own.sort_by(|a, b| {
            let newest = b.row.created_at.cmp(&a.row.created_at);
            newest.then_with(|| a.row.id.cmp(&b.row.id))
        });
        let own = own.iter().map(|built| self.describe(built));
        own.chain(self.default_templates()).collect()
    }

    /// The server's own.
    pub fn default_templates(&self) -> Vec<Template> {
        let servers = SERVER_TENANT
            .parse()
            .map(|server| self.templates.of(&server));
        let servers = servers.unwrap_or_default();
        let built = servers.iter().map(|built| self.describe(built));
        self.catalogue.all().into_iter().chain(built).collect()
    }

    /// By id only.
    pub fn template(&self, tenant: &Tenant, id: &str) -> Result<Template> {
        if let Some(template) = self.catalogue.by_id(id) {
            return Ok(template);
        }
        let another = || Error::TemplateOfAnother(id.to_owned());
        if let Some(built) = self.templates.by_id(id) {
            let seen = built.row.public || built.owned_by(tenant);
            return seen.then(|| self.describe(&built)).ok_or_else(another);
        }
        let entry = self.snapshots.by_id(id);
        let entry = entry.ok_or_else(|| Error::TemplateNotFound(id.to_owned()))?;
        if entry.row.tenant != tenant.id {
            return Err(another());
        }
        Ok(entry.as_template(tenant))
    }

    /// By name or id, whatever the tag.
    pub fn find_template(
        &self,
        tenant: &Tenant,
        reference: &Reference,
    ) -> Result<Option<Template>> {
        Ok(match self.look_up_template(tenant, reference)? {
            None => None,
            Some(Found::BuiltIn(info)) => Some(self.catalogue.with_use(&info)),
            Some(Found::Built(built)) => Some(self.describe(&built)),
            Some(Found::Snapshot(entry)) => Some(entry.as_template(tenant)),
        })
    }

    /// The one that a name means; with a tag only when that exists.
    pub fn resolve_template(&self, tenant: &Tenant, text: &str) -> Result<Template> {
        let reference = Reference::parse(text)?;
        let template = self
            .find_template(tenant, &reference)?
            .ok_or_else(|| Error::TemplateNotFound(text.to_owned()))?;
        match &reference.tag {
            Some(tag) if !template.means(tag) => Err(Error::TagNotFound {
                template: reference.name,
                tag: tag.clone(),
            }),
            _ => Ok(template),
        }
    }

    /// Deletes what was built or kept under a name.
    pub async fn delete_template(
        self: &Arc<Self>,
        tenant: &Tenant,
        reference: &Reference,
    ) -> Result<()> {
        match self.look_up_template(tenant, reference)? {
            Some(Found::Built(_)) => self.delete_built(tenant, reference).await,
            _ => self.delete_snapshot(tenant, reference).await,
        }
    }

    /// A tenant's own names come first, then those that everybody has, then ids.
    pub(crate) fn look_up_template(
        &self,
        tenant: &Tenant,
        reference: &Reference,
    ) -> Result<Option<Found>> {
        let name = &reference.name;
        if let Some(namespace) = &reference.namespace
            && *namespace != tenant.slug
        {
            return self.of_another(namespace, name);
        }
        if let Some(own) = self.templates.by_name(&tenant.id, name) {
            return Ok(Some(Found::Built(Box::new(own))));
        }
        if let Some(own) = self.snapshots.by_name(&tenant.id, name) {
            return Ok(Some(Found::Snapshot(Box::new(own))));
        }
        if reference.namespace.is_some() {
            return Ok(None);
        }
        if let Some(global) = self.templates.by_global_name(name) {
            return Ok(Some(Found::Built(Box::new(global))));
        }
        if let Some(info) = self.catalogue.find(reference) {
            return Ok(Some(Found::BuiltIn(Box::new(info.clone()))));
        }
        self.with_id(tenant, name)
    }

    /// A name of the tenant's own under which nothing was ever built hides nothing.
    pub(crate) fn look_up_usable(
        &self,
        tenant: &Tenant,
        reference: &Reference,
    ) -> Result<Option<Found>> {
        let found = self.look_up_template(tenant, reference)?;
        let Some(Found::Built(own)) = &found else {
            return Ok(found);
        };
        let never_ready = own.builds.iter().all(|b| b.status != BuildStatus::Ready);
        if reference.namespace.is_some() || own.row.tenant != tenant.id || !never_ready {
            return Ok(found);
        }
        if let Some(global) = self.templates.by_global_name(&reference.name) {
            return Ok(Some(Found::Built(Box::new(global))));
        }
        let shipped = self.catalogue.find(reference);
        Ok(shipped.map_or(found, |info| Some(Found::BuiltIn(Box::new(info.clone())))))
    }

    fn of_another(&self, namespace: &str, name: &str) -> Result<Option<Found>> {
        let Some(owner) = self.tenant(namespace) else {
            return Ok(None);
        };
        match self.templates.by_name(&owner.id, name) {
            Some(built) if built.row.public => Ok(Some(Found::Built(Box::new(built)))),
            None if self.snapshots.by_name(&owner.id, name).is_none() => Ok(None),
            _ => Err(Error::TemplateOfAnother(name.to_owned())),
        }
    }

    fn with_id(&self, tenant: &Tenant, id: &str) -> Result<Option<Found>> {
        let another = || Error::TemplateOfAnother(id.to_owned());
        match self.templates.by_id(id) {
            Some(built) if built.row.public || built.owned_by(tenant) => {
                return Ok(Some(Found::Built(Box::new(built))));
            }
            Some(_) => return Err(another()),
            None => {}
        }
        match self.snapshots.by_id(id) {
            Some(entry) if entry.row.tenant != tenant.id => Err(another()),
            found => Ok(found.map(|entry| Found::Snapshot(Box::new(entry)))),
        }
    }

    /// What to make a sandbox from.
    pub(crate) fn origin(&self, tenant: &Tenant, text: &str) -> Result<Origin> {
        let reference = Reference::parse(text)?;
        let tag = reference.tag.as_deref().unwrap_or(DEFAULT_TAG);
        let no_tag = || Error::TagNotFound {
            template: reference.name.clone(),
            tag: tag.to_owned(),
        };
        match self.look_up_usable(tenant, &reference)? {
            None => Err(Error::TemplateNotFound(text.to_owned())),
            Some(Found::BuiltIn(info)) if !info.public => {
                Err(Error::TemplateForbidden(text.to_owned()))
            }
            Some(Found::BuiltIn(info)) => {
                if tag != DEFAULT_TAG && tag != info.build_id {
                    return Err(no_tag());
                }
                Ok(Origin {
                    alias: info.aliases.first().cloned(),
                    template: info.id,
                    build: None,
                    limits: info.limits,
                    tier: None,
                    image: None,
                    image_hold: None,
                    build_hold: None,
                })
            }
            Some(Found::Built(built)) => self.origin_of(&built, tag).ok_or_else(|| {
                let servers = built.row.tenant.as_str() == SERVER_TENANT;
                match built.row.global_name {
                    Some(name) if servers && tag == DEFAULT_TAG => Error::TemplateNotBuilt(name),
                    _ if built.any_succeeded() => no_tag(),
                    _ => Error::NoBuildSucceeded(reference.name.clone()),
                }
            }),
            Some(Found::Snapshot(entry)) => {
                let build = entry.build(tag).ok_or_else(no_tag)?;
                Ok(Origin {
                    template: build.base.clone(),
                    build: build.base_build.clone(),
                    alias: entry.row.name.clone(),
                    limits: build.limits,
                    tier: build.tier,
                    image: Some(build.image.clone()),
                    image_hold: Some(self.snapshots.hold(&build.image)),
                    // The snapshot itself keeps it.
                    build_hold: None,
                })
            }
        }
    }

    fn origin_of(&self, built: &Built, tag: &str) -> Option<Origin> {
        let build = built.usable(tag)?;
        Some(Origin {
            template: built.row.id.clone(),
            build: Some(build.id.clone()),
            alias: built.row.name.clone(),
            limits: build.limits,
            tier: build.tier,
            image: None,
            image_hold: None,
            build_hold: Some(self.templates.hold(&built.row.id, &build.id)?),
        })
    }

    pub(crate) fn describe(&self, built: &Built) -> Template {
        let shown = built.shown();
        let namespace = self.keys.by_id(&built.row.tenant).map(|owner| owner.slug);
        let name = built.row.name.clone();
        let full = match (&namespace, &name) {
            (Some(namespace), Some(name)) => Some(format!("{namespace}/{name}")),
            _ => None,
        };
        let tags = built.tags.values();
        let used = self.catalogue.used(&built.row.id);
        Template {
            info: TemplateInfo {
                id: built.row.id.clone(),
                build_id: shown.map_or_else(|| Uuid::nil().to_string(), |build| build.id.clone()),
                aliases: name.into_iter().collect(),
                limits: shown.map_or_else(|| self.unbuilt_limits(built), |build| build.limits),
                created_at: built.row.created_at,
                public: built.row.public,
            },
            status: shown.map_or(BuildStatus::Waiting, |build| build.status),
            names: full
                .into_iter()
                .chain(built.row.global_name.clone())
                .collect(),
            namespace,
            builds: built.builds.iter().map(TemplateBuild::from).collect(),
            tags: tags
                .map(|tag| (tag.tag.clone(), tag.build.clone(), tag.assigned_at))
                .collect(),
            spawn_count: used.map_or(0, |(count, _)| count),
            last_spawned_at: used.map(|(_, at)| at),
        }
    }
}

impl Template {
    pub fn is_snapshot(&self) -> bool {
        self.builds.iter().any(|build| build.image.is_some())
    }

    /// Whether a tag, or the id of a build, means something here. What the server has not built
    /// yet it builds when it is wanted.
    fn means(&self, tag: &str) -> bool {
        let ready = |build: &TemplateBuild| build.id == tag && build.status == BuildStatus::Ready;
        let servers = self.namespace.is_none() && tag == DEFAULT_TAG;
        servers || self.tags.iter().any(|(own, ..)| own == tag) || self.builds.iter().any(ready)
    }
}

impl CatalogEntry {
    fn as_template(&self, owner: &Tenant) -> Template {
        let shown = self.build(DEFAULT_TAG).or_else(|| self.newest());
        let builds = self.builds.iter().map(|build| {
            let image = Some(build.image.clone());
            TemplateBuild::given(&build.id, image, build.limits, build.created_at)
        });
        let tags = self.tags.values();
        Template {
            info: TemplateInfo {
                id: self.row.template.clone(),
                build_id: shown.map_or_else(String::new, |build| build.id.clone()),
                aliases: self.row.name.iter().cloned().collect(),
                limits: shown.map_or_else(Limits::default, |build| build.limits),
                created_at: self.row.created_at,
                public: false,
            },
            status: BuildStatus::Ready,
            namespace: Some(owner.slug.clone()),
            names: self
                .row
                .name
                .iter()
                .map(|name| format!("{}/{name}", owner.slug))
                .collect(),
            builds: builds.collect(),
            tags: tags
                .map(|tag| (tag.tag.clone(), tag.build.clone(), tag.assigned_at))
                .collect(),
            spawn_count: 0,
            last_spawned_at: None,
        }
    }
}
