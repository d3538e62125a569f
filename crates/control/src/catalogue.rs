//! The templates that the server has without building them, and how often every template was used.

use std::collections::HashMap;

use parking_lot::Mutex;
use soulbox_store::{BuildStatus, TemplateUse};
use soulbox_types::{TemplateId, UnixMillis};

use crate::{
    Reference, TemplateInfo,
    reference::DEFAULT_TAG,
    template::{Template, TemplateBuild},
};

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

    /// Whether one has this name.
    pub(crate) fn named(&self, name: &str) -> bool {
        self.templates
            .iter()
            .any(|info| info.aliases.iter().any(|alias| alias == name))
    }

    pub(crate) fn used(&self, id: &TemplateId) -> Option<(u64, UnixMillis)> {
        self.used.lock().get(id).copied()
    }

    pub(crate) fn count_use(&self, id: &TemplateId, at: UnixMillis) {
        let mut used = self.used.lock();
        let (count, last) = used.entry(id.clone()).or_insert((0, at));
        *count += 1;
        *last = at.max(*last);
    }

    pub(crate) fn with_use(&self, info: &TemplateInfo) -> Template {
        let used = self.used(&info.id);
        Template {
            info: info.clone(),
            status: BuildStatus::Ready,
            namespace: None,
            names: info.aliases.clone(),
            builds: vec![TemplateBuild::given(
                &info.build_id,
                None,
                info.limits,
                info.created_at,
            )],
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
