//! What sandboxes are made from: the server's templates, and the tenants' snapshots.

use std::collections::HashMap;

use parking_lot::Mutex;
use soulbox_store::TemplateUse;
use soulbox_types::{Limits, TemplateId, UnixMillis};

use crate::{
    Control, Error, Reference, Result, TemplateInfo, Tenant,
    reference::DEFAULT_TAG,
    shelf::{ImageHold, Shelved},
};

/// A template, or a snapshot, as tenants see it.
#[derive(Debug, Clone)]
pub struct Template {
    pub info: TemplateInfo,
    /// The slug of the tenant whose snapshot it is; `None` for the server's own templates.
    pub namespace: Option<String>,
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
    pub created_at: UnixMillis,
}

/// What a sandbox is made from.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) template: TemplateId,
    pub(crate) build: Option<String>,
    pub(crate) alias: Option<String>,
    pub(crate) limits: Limits,
    pub(crate) image: Option<TemplateId>,
    pub(crate) hold: Option<ImageHold>,
}

pub(crate) enum Found {
    BuiltIn(Box<TemplateInfo>),
    Snapshot(Box<Shelved>),
}

impl Control {
    /// The server's own.
    pub fn templates(&self) -> Vec<Template> {
        self.catalogue.all()
    }

    /// By id only.
    pub fn template(&self, tenant: &Tenant, id: &str) -> Result<Template> {
        if let Some(template) = self.catalogue.by_id(id) {
            return Ok(template);
        }
        let shelved = self.shelf.by_id(id);
        let shelved = shelved.ok_or_else(|| Error::TemplateNotFound(id.to_owned()))?;
        if shelved.row.tenant != tenant.id {
            return Err(Error::TemplateOfAnother(id.to_owned()));
        }
        Ok(shelved.as_template(tenant))
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
            Some(Found::Snapshot(shelved)) => Some(shelved.as_template(tenant)),
        })
    }

    /// The one that a sandbox would be made from.
    pub fn resolve_template(&self, tenant: &Tenant, text: &str) -> Result<Template> {
        self.origin(tenant, text)?;
        self.find_template(tenant, &Reference::parse(text)?)?
            .ok_or_else(|| Error::TemplateNotFound(text.to_owned()))
    }

    /// A tenant's own names come first, then the server's, then ids.
    pub(crate) fn look_up_template(
        &self,
        tenant: &Tenant,
        reference: &Reference,
    ) -> Result<Option<Found>> {
        let name = &reference.name;
        let snapshot = |shelved| Some(Found::Snapshot(Box::new(shelved)));
        let another = || Error::TemplateOfAnother(name.clone());
        if let Some(namespace) = &reference.namespace
            && *namespace != tenant.slug
        {
            let owner = self.tenant(namespace);
            let there = owner.and_then(|owner| self.shelf.by_name(&owner.id, name));
            return there.map_or(Ok(None), |_| Err(another()));
        }
        if let Some(own) = self.shelf.by_name(&tenant.id, name) {
            return Ok(snapshot(own));
        }
        if reference.namespace.is_some() {
            return Ok(None);
        }
        if let Some(info) = self.catalogue.find(reference) {
            return Ok(Some(Found::BuiltIn(Box::new(info.clone()))));
        }
        match self.shelf.by_id(name) {
            Some(shelved) if shelved.row.tenant != tenant.id => Err(another()),
            found => Ok(found.and_then(snapshot)),
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
        match self.look_up_template(tenant, &reference)? {
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
                    image: None,
                    hold: None,
                })
            }
            Some(Found::Snapshot(shelved)) => {
                let build = shelved.build(tag).ok_or_else(no_tag)?;
                Ok(Origin {
                    template: build.base.clone(),
                    build: build.base_build.clone(),
                    alias: shelved.row.name.clone(),
                    limits: build.limits,
                    image: Some(build.image.clone()),
                    hold: Some(self.shelf.hold(&build.image)),
                })
            }
        }
    }
}

impl Shelved {
    fn as_template(&self, owner: &Tenant) -> Template {
        let shown = self.build(DEFAULT_TAG).or_else(|| self.newest());
        let builds = self.builds.iter().map(|build| TemplateBuild {
            id: build.id.clone(),
            image: Some(build.image.clone()),
            limits: build.limits,
            created_at: build.created_at,
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
            namespace: Some(owner.slug.clone()),
            builds: builds.collect(),
            tags: tags
                .map(|tag| (tag.tag.clone(), tag.build.clone(), tag.assigned_at))
                .collect(),
            spawn_count: 0,
            last_spawned_at: None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Catalogue {
    templates: Vec<TemplateInfo>,
    used: Mutex<HashMap<TemplateId, (u64, UnixMillis)>>,
}

impl Catalogue {
    pub(crate) fn new(templates: Vec<TemplateInfo>, used: Vec<TemplateUse>) -> Self {
        let used = used
            .into_iter()
            .map(|u| (u.template, (u.spawned, u.last_spawned_at)));
        Self {
            templates,
            used: Mutex::new(used.collect()),
        }
    }

    pub(crate) fn all(&self) -> Vec<Template> {
        self.templates
            .iter()
            .map(|info| self.with_use(info))
            .collect()
    }

    pub(crate) fn by_id(&self, id: &str) -> Option<Template> {
        self.templates
            .iter()
            .find(|info| info.id.as_str() == id)
            .map(|info| self.with_use(info))
    }

    /// A global name, or an id. Built-in templates live in no namespace, so one is never found by
    /// a name with a namespace.
    pub(crate) fn find(&self, reference: &Reference) -> Option<&TemplateInfo> {
        if reference.namespace.is_some() {
            return None;
        }
        let named = |info: &&TemplateInfo| info.aliases.contains(&reference.name);
        let with_id = |info: &&TemplateInfo| info.id.as_str() == reference.name;
        let all = || self.templates.iter();
        all().find(named).or_else(|| all().find(with_id))
    }

    pub(crate) fn count_use(&self, id: &TemplateId, at: UnixMillis) {
        let mut used = self.used.lock();
        let (count, last) = used.entry(id.clone()).or_insert((0, at));
        *count += 1;
        *last = at.max(*last);
    }

    pub(crate) fn with_use(&self, info: &TemplateInfo) -> Template {
        let used = self.used.lock().get(&info.id).copied();
        Template {
            info: info.clone(),
            namespace: None,
            builds: vec![TemplateBuild {
                id: info.build_id.clone(),
                image: None,
                limits: info.limits,
                created_at: info.created_at,
            }],
            tags: vec![(
                DEFAULT_TAG.to_owned(),
                info.build_id.clone(),
                info.created_at,
            )],
            spawn_count: used.map_or(0, |(count, _)| count),
            last_spawned_at: used.map(|(_, at)| at),
        }
    }
}
