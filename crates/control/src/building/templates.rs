//! The templates of all tenants and the server's built-in ones, in memory as in the store.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use parking_lot::Mutex;
use soulbox_store::{BuildRow, BuildStatus, Store, TemplateRow, TemplateTagRow};
use soulbox_types::{TemplateId, TenantId, UnixMillis};

use crate::{BuildConfig, Result, reference::DEFAULT_TAG};

/// A template with all that it means.
#[derive(Debug, Clone)]
pub(crate) struct Built {
    pub(crate) row: TemplateRow,
    /// Oldest first.
    pub(crate) builds: Vec<BuildRow>,
    pub(crate) tags: BTreeMap<String, TemplateTagRow>,
}

impl Built {
    /// The build that a tag means, or the one with this id, if sandboxes can be made from it.
    pub(crate) fn usable(&self, tag: &str) -> Option<&BuildRow> {
        let id = self.tags.get(tag).map_or(tag, |row| row.build.as_str());
        self.build(id)
            .filter(|build| build.status == BuildStatus::Ready && !build.removed)
    }

    pub(crate) fn any_succeeded(&self) -> bool {
        let ready = |build: &BuildRow| build.status == BuildStatus::Ready;
        self.builds.iter().any(ready)
    }

    pub(crate) fn build(&self, id: &str) -> Option<&BuildRow> {
        self.builds.iter().find(|build| build.id == id)
    }

    /// The one that stands for the whole template.
    pub(crate) fn shown(&self) -> Option<&BuildRow> {
        self.usable(DEFAULT_TAG).or_else(|| self.builds.last())
    }

    pub(crate) fn newest(&self) -> Option<&BuildRow> {
        self.builds.last()
    }
}

#[derive(Debug, Default)]
struct Inner {
    templates: HashMap<TemplateId, Built>,
    names: HashMap<(TenantId, String), TemplateId>,
    global_names: HashMap<String, TemplateId>,
    /// By build: whose number of users that the node does not know of (yet).
    held: HashMap<String, usize>,
}

#[derive(Debug, Default)]
pub(crate) struct TemplateCatalog {
    inner: Mutex<Inner>,
}

impl TemplateCatalog {
    /// What the store remembers. A build whose description is missing cannot be used, but is not
    /// forgotten: the disk may be back tomorrow.
    pub(crate) async fn load(store: &Store, builds: Option<&BuildConfig>) -> Result<Self> {
        let there = |id: &str| builds.is_none_or(|builds| builds.templates.build(id).is_some());
        let mut inner = Inner::default();
        for row in store.templates().await? {
            inner.insert(row);
        }
        for mut build in store.builds().await? {
            if build.status == BuildStatus::Ready && !build.removed && !there(&build.id) {
                tracing::error!(
                    template = %build.template, build = build.id,
                    "the description of a build is missing: it cannot be used"
                );
                build.removed = true;
            }
            if let Some(built) = inner.templates.get_mut(&build.template) {
                built.builds.push(build);
            }
        }
        for tag in store.template_tags().await? {
            if let Some(built) = inner.templates.get_mut(&tag.template) {
                built.tags.insert(tag.tag.clone(), tag);
            }
        }
        Ok(Self {
            inner: Mutex::new(inner),
        })
    }

    pub(crate) fn by_name(&self, tenant: &TenantId, name: &str) -> Option<Built> {
        let inner = self.inner.lock();
        let id = inner.names.get(&(tenant.clone(), name.to_owned()))?;
        inner.templates.get(id).cloned()
    }

    pub(crate) fn by_global_name(&self, name: &str) -> Option<Built> {
        let inner = self.inner.lock();
        inner.templates.get(inner.global_names.get(name)?).cloned()
    }

    /// Whosever it is, unless it is deleted.
    pub(crate) fn by_id(&self, id: &str) -> Option<Built> {
        let id: TemplateId = id.parse().ok()?;
        let inner = self.inner.lock();
        let built = inner.templates.get(&id)?;
        built.row.deleted_at.is_none().then(|| built.clone())
    }

    pub(crate) fn owner(&self, template: &TemplateId) -> Option<TenantId> {
        let inner = self.inner.lock();
        let built = inner.templates.get(template)?;
        Some(built.row.tenant.clone())
    }

    /// Those that are not deleted.
    pub(crate) fn of(&self, tenant: &TenantId) -> Vec<Built> {
        let inner = self.inner.lock();
        let own = inner.templates.values();
        own.filter(|built| built.row.tenant == *tenant && built.row.deleted_at.is_none())
            .cloned()
            .collect()
    }

    /// Also those that are deleted.
    pub(crate) fn all(&self) -> Vec<Built> {
        self.inner.lock().templates.values().cloned().collect()
    }

    /// How many of a tenant's builds are in this state.
    pub(crate) fn count(&self, tenant: &TenantId, status: BuildStatus) -> usize {
        let inner = self.inner.lock();
        let own = inner.templates.values();
        own.filter(|built| built.row.tenant == *tenant)
            .flat_map(|built| &built.builds)
            .filter(|build| build.status == status)
            .count()
    }

    /// One that has no build yet.
    pub(crate) fn insert(&self, row: TemplateRow) {
        self.inner.lock().insert(row);
    }

    pub(crate) fn add(&self, row: &TemplateRow, build: BuildRow) {
        let mut inner = self.inner.lock();
        if !inner.templates.contains_key(&row.id) {
            inner.insert(row.clone());
        }
        if let Some(built) = inner.templates.get_mut(&row.id) {
            built.builds.push(build);
        }
    }

    pub(crate) fn change(
        &self,
        template: &TemplateId,
        build: &str,
        by: impl FnOnce(&mut BuildRow),
    ) {
        let mut inner = self.inner.lock();
        let built = inner.templates.get_mut(template);
        if let Some(build) =
            built.and_then(|built| built.builds.iter_mut().find(|own| own.id == build))
        {
            by(build);
        }
    }

    pub(crate) fn tag(&self, tags: Vec<TemplateTagRow>) {
        let mut inner = self.inner.lock();
        for tag in tags {
            if let Some(built) = inner.templates.get_mut(&tag.template) {
                built.tags.insert(tag.tag.clone(), tag);
            }
        }
    }

    pub(crate) fn untag(&self, template: &TemplateId, tags: &[String]) {
        if let Some(built) = self.inner.lock().templates.get_mut(template) {
            built.tags.retain(|tag, _| !tags.contains(tag));
        }
    }

    pub(crate) fn publish(
        &self,
        template: &TemplateId,
        public: bool,
        global_name: Option<&str>,
    ) -> Option<Built> {
        let mut inner = self.inner.lock();
        inner.global_names.retain(|_, id| id != template);
        if let Some(name) = global_name {
            inner.global_names.insert(name.to_owned(), template.clone());
        }
        let built = inner.templates.get_mut(template)?;
        built.row.public = public;
        built.row.global_name = global_name.map(str::to_owned);
        Some(built.clone())
    }

    pub(crate) fn delete(&self, template: &TemplateId, at: UnixMillis) {
        let mut inner = self.inner.lock();
        inner.names.retain(|_, id| id != template);
        inner.global_names.retain(|_, id| id != template);
        if let Some(built) = inner.templates.get_mut(template) {
            built.tags.clear();
            built.row.name = None;
            built.row.global_name = None;
            built.row.public = false;
            built.row.deleted_at = Some(at);
        }
    }

    pub(crate) fn forget_build(&self, template: &TemplateId, build: &str) {
        if let Some(built) = self.inner.lock().templates.get_mut(template) {
            built.builds.retain(|own| own.id != build);
        }
    }

    pub(crate) fn forget(&self, template: &TemplateId) {
        self.inner.lock().templates.remove(template);
    }

    /// Keeps a usable build from going. `None`: it is gone.
    pub(crate) fn hold(self: &Arc<Self>, template: &TemplateId, build: &str) -> Option<BuildHold> {
        let mut inner = self.inner.lock();
        let built = inner.templates.get(template)?;
        built.usable(build)?;
        *inner.held.entry(build.to_owned()).or_default() += 1;
        Some(BuildHold {
            templates: Arc::clone(self),
            build: build.to_owned(),
        })
    }

    pub(crate) fn is_held(&self, build: &str) -> bool {
        self.inner.lock().held.contains_key(build)
    }

    /// The builds that [`Self::take_unused`] would take.
    pub(crate) fn unused(&self, used: &HashSet<String>) -> HashSet<String> {
        let inner = self.inner.lock();
        let mut unused = HashSet::new();
        for built in inner.templates.values() {
            let tagged: HashSet<_> = built.tags.values().map(|tag| &tag.build).collect();
            let is_unused = |build: &&BuildRow| {
                let needed = tagged.contains(&build.id)
                    || inner.held.contains_key(&build.id)
                    || used.contains(&build.id);
                build.status == BuildStatus::Ready && !build.removed && !needed
            };
            unused.extend(built.builds.iter().filter(is_unused).map(|b| b.id.clone()));
        }
        unused
    }

    /// Marks ready builds that no tag means, that nobody holds and that are not among `used` as
    /// removed, and answers them. `used` is asked while nobody can take a new hold.
    pub(crate) fn take_unused(&self, used: impl FnOnce() -> HashSet<String>) -> Vec<BuildRow> {
        let mut inner = self.inner.lock();
        let Inner {
            templates, held, ..
        } = &mut *inner;
        let used = used();
        let mut taken = Vec::new();
        for built in templates.values_mut() {
            let tagged: HashSet<_> = built.tags.values().map(|tag| &tag.build).collect();
            for build in &mut built.builds {
                let needed = tagged.contains(&build.id)
                    || held.contains_key(&build.id)
                    || used.contains(&build.id);
                if build.status == BuildStatus::Ready && !build.removed && !needed {
                    build.removed = true;
                    taken.push(build.clone());
                }
            }
        }
        taken
    }
}

impl Inner {
    fn insert(&mut self, row: TemplateRow) {
        if let Some(name) = &row.name {
            let key = (row.tenant.clone(), name.clone());
            self.names.insert(key, row.id.clone());
        }
        if let Some(name) = &row.global_name {
            self.global_names.insert(name.clone(), row.id.clone());
        }
        let built = Built {
            builds: Vec::new(),
            tags: BTreeMap::new(),
            row,
        };
        self.templates.insert(built.row.id.clone(), built);
    }
}

/// Keeps a build from going.
#[derive(Debug)]
pub(crate) struct BuildHold {
    templates: Arc<TemplateCatalog>,
    build: String,
}

impl Drop for BuildHold {
    fn drop(&mut self) {
        let mut inner = self.templates.inner.lock();
        if let Some(count) = inner.held.get_mut(&self.build) {
            *count -= 1;
            if *count == 0 {
                inner.held.remove(&self.build);
            }
        }
    }
}
