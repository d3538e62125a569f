//! The templates that sandboxes are made from, and how often each was used.

use std::collections::HashMap;

use parking_lot::Mutex;
use soulbox_store::TemplateUse;
use soulbox_types::{TemplateId, UnixMillis};

use crate::{Error, Reference, Result, TemplateInfo, reference::DEFAULT_TAG};

/// A template as tenants see it.
#[derive(Debug, Clone)]
pub struct Template {
    pub info: TemplateInfo,
    pub spawn_count: u64,
    pub last_spawned_at: Option<UnixMillis>,
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

    /// What to make a sandbox from.
    pub(crate) fn resolve(&self, text: &str) -> Result<&TemplateInfo> {
        let reference = Reference::parse(text)?;
        let info = self
            .find(&reference)
            .ok_or_else(|| Error::TemplateNotFound(text.to_owned()))?;
        if let Some(tag) = &reference.tag
            && tag != DEFAULT_TAG
            && *tag != info.build_id
        {
            let template = reference.name.clone();
            return Err(Error::TagNotFound {
                template,
                tag: tag.clone(),
            });
        }
        if info.public {
            Ok(info)
        } else {
            Err(Error::TemplateForbidden(text.to_owned()))
        }
    }

    pub(crate) fn count_use(&self, id: &TemplateId, at: UnixMillis) {
        let mut used = self.used.lock();
        let (count, last) = used.entry(id.clone()).or_insert((0, at));
        *count += 1;
        *last = at.max(*last);
    }

    fn with_use(&self, info: &TemplateInfo) -> Template {
        let used = self.used.lock().get(&info.id).copied();
        Template {
            info: info.clone(),
            spawn_count: used.map_or(0, |(count, _)| count),
            last_spawned_at: used.map(|(_, at)| at),
        }
    }
}
