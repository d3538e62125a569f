//! The snapshots of all tenants, in memory as in the store.
//!
//! An image is *doomed* when it goes as soon as nothing stands on it: the node knows what does.
//! One that is being made or used by a request is *held*, and does not go meanwhile.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, atomic::AtomicBool},
};

use parking_lot::Mutex;
use soulbox_store::{SnapshotBuildRow, SnapshotRow, SnapshotTagRow, Store};
use soulbox_types::{TemplateId, TenantId};

use crate::Result;

/// A name, or only an id, with all that it means.
#[derive(Debug, Clone)]
pub(crate) struct CatalogEntry {
    pub(crate) row: SnapshotRow,
    /// Oldest first, and only those that the node has.
    pub(crate) builds: Vec<SnapshotBuildRow>,
    pub(crate) tags: BTreeMap<String, SnapshotTagRow>,
}

#[derive(Debug, Default)]
struct Inner {
    entry: HashMap<TemplateId, CatalogEntry>,
    names: HashMap<(TenantId, String), TemplateId>,
    doomed: HashSet<TemplateId>,
    held: HashMap<TemplateId, usize>,
}

#[derive(Debug, Default)]
pub(crate) struct SnapshotCatalog {
    inner: Mutex<Inner>,
    /// Held while store and memory are changed together.
    pub(crate) writing: tokio::sync::Mutex<()>,
    /// Held by the one that clears doomed images away.
    pub(crate) sweeping: tokio::sync::Mutex<()>,
    /// Another one waits for that; a third would find nothing.
    pub(crate) sweep_waits: AtomicBool,
}

impl SnapshotCatalog {
    /// What the store remembers. A build whose image the node does not have cannot be used, but is
    /// not forgotten: the disk may be back tomorrow.
    pub(crate) async fn load(store: &Store, images: &HashSet<TemplateId>) -> Result<Self> {
        let mut inner = Inner {
            doomed: store.doomed_images().await?.into_iter().collect(),
            ..Inner::default()
        };
        for row in store.snapshots().await? {
            inner.add(row);
        }
        for build in store.snapshot_builds().await? {
            if !images.contains(&build.image) {
                tracing::error!(
                    template = %build.template, image = %build.image,
                    "the files of a snapshot are missing: it cannot be used"
                );
            } else if let Some(entry) = inner.entry.get_mut(&build.template) {
                entry.builds.push(build);
            }
        }
        for tag in store.snapshot_tags().await? {
            if let Some(entry) = inner.entry.get_mut(&tag.template)
                && entry.builds.iter().any(|build| build.id == tag.build)
            {
                entry.tags.insert(tag.tag.clone(), tag);
            }
        }
        Ok(Self {
            inner: Mutex::new(inner),
            ..Self::default()
        })
    }

    pub(crate) fn by_name(&self, tenant: &TenantId, name: &str) -> Option<CatalogEntry> {
        let inner = self.inner.lock();
        let template = inner.names.get(&(tenant.clone(), name.to_owned()))?;
        inner.usable(template)
    }

    /// Whosever it is.
    pub(crate) fn by_id(&self, id: &str) -> Option<CatalogEntry> {
        self.inner.lock().usable(&id.parse().ok()?)
    }

    pub(crate) fn of(&self, tenant: &TenantId) -> Vec<CatalogEntry> {
        let inner = self.inner.lock();
        let own = inner.entry.values().filter(|s| s.row.tenant == *tenant);
        own.cloned().collect()
    }

    /// The row to which another build of this name belongs: also when none of its builds is
    /// usable.
    pub(crate) fn row_named(&self, tenant: &TenantId, name: &str) -> Option<SnapshotRow> {
        let inner = self.inner.lock();
        let template = inner.names.get(&(tenant.clone(), name.to_owned()))?;
        inner.entry.get(template).map(|entry| entry.row.clone())
    }

    pub(crate) fn add(&self, row: SnapshotRow, build: SnapshotBuildRow, tag: SnapshotTagRow) {
        let mut inner = self.inner.lock();
        inner.doomed.remove(&build.image);
        let template = row.template.clone();
        if !inner.entry.contains_key(&template) {
            inner.add(row);
        }
        if let Some(entry) = inner.entry.get_mut(&template) {
            entry.builds.push(build);
            entry.tags.insert(tag.tag.clone(), tag);
        }
    }

    pub(crate) fn tag(&self, tags: Vec<SnapshotTagRow>) {
        let mut inner = self.inner.lock();
        for tag in tags {
            if let Some(entry) = inner.entry.get_mut(&tag.template) {
                entry.tags.insert(tag.tag.clone(), tag);
            }
        }
    }

    pub(crate) fn untag(&self, template: &TemplateId, tags: &[String]) {
        if let Some(entry) = self.inner.lock().entry.get_mut(template) {
            entry.tags.retain(|tag, _| !tags.contains(tag));
        }
    }

    pub(crate) fn remove(&self, template: &TemplateId) {
        let mut inner = self.inner.lock();
        let Some(entry) = inner.entry.remove(template) else {
            return;
        };
        if let Some(name) = entry.row.name {
            inner.names.remove(&(entry.row.tenant, name));
        }
        let images = entry.builds.into_iter().map(|build| build.image);
        inner.doomed.extend(images);
    }

    pub(crate) fn doom(&self, image: &TemplateId) {
        self.inner.lock().doomed.insert(image.clone());
    }

    /// Those that no request holds.
    pub(crate) fn doomed(&self) -> Vec<TemplateId> {
        let inner = self.inner.lock();
        let free = inner.doomed.iter().filter(|i| !inner.held.contains_key(*i));
        free.cloned().collect()
    }

    pub(crate) fn forget(&self, image: &TemplateId) {
        self.inner.lock().doomed.remove(image);
    }

    pub(crate) fn is_held(&self, image: &TemplateId) -> bool {
        self.inner.lock().held.contains_key(image)
    }

    pub(crate) fn hold(self: &Arc<Self>, image: &TemplateId) -> ImageHold {
        *self.inner.lock().held.entry(image.clone()).or_default() += 1;
        ImageHold {
            snapshots: Arc::clone(self),
            image: image.clone(),
        }
    }
}

impl Inner {
    fn add(&mut self, row: SnapshotRow) {
        if let Some(name) = &row.name {
            let key = (row.tenant.clone(), name.clone());
            self.names.insert(key, row.template.clone());
        }
        let entry = CatalogEntry {
            builds: Vec::new(),
            tags: BTreeMap::new(),
            row,
        };
        self.entry.insert(entry.row.template.clone(), entry);
    }

    fn usable(&self, template: &TemplateId) -> Option<CatalogEntry> {
        let entry = self.entry.get(template)?;
        (!entry.builds.is_empty()).then(|| entry.clone())
    }
}

impl CatalogEntry {
    /// The build that a tag means, or the one with this id.
    pub(crate) fn build(&self, tag: &str) -> Option<&SnapshotBuildRow> {
        let id = self.tags.get(tag).map_or(tag, |row| row.build.as_str());
        self.builds.iter().find(|build| build.id == id)
    }

    pub(crate) fn newest(&self) -> Option<&SnapshotBuildRow> {
        self.builds.last()
    }
}

/// Keeps an image from going.
#[derive(Debug)]
pub(crate) struct ImageHold {
    snapshots: Arc<SnapshotCatalog>,
    image: TemplateId,
}

impl Drop for ImageHold {
    fn drop(&mut self) {
        let mut inner = self.snapshots.inner.lock();
        if let Some(count) = inner.held.get_mut(&self.image) {
            *count -= 1;
            if *count == 0 {
                inner.held.remove(&self.image);
            }
        }
    }
}
