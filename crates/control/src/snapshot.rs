//! Keeping the files of a sandbox, to make others from.
//!
//! An image is doomed before it is made and kept when its rows are written, so that a crash at any
//! moment leaves nothing behind that nobody knows.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use soulbox_runtime::{Error as NodeError, Snapshot};
use soulbox_store::{SnapshotBuildRow, SnapshotRow, SnapshotTagRow};
use soulbox_types::{Chain, SandboxId, SandboxState, TemplateId, UnixMillis};
use tokio::time::timeout;
use tracing::Instrument;
use uuid::Uuid;

use crate::{
    Control, Error, Reference, Result, Tenant,
    building::own_reference,
    committed::follow,
    reference::DEFAULT_TAG,
    snapshots::{CatalogEntry, ImageHold},
    template::Found,
};

/// A large disk is copied at the speed of the machine's own.
const CAPTURE_LIMIT: Duration = Duration::from_mins(10);
const REMOVE_LIMIT: Duration = Duration::from_mins(2);

/// A snapshot as its tenant sees it: one tag of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotInfo {
    pub template: TemplateId,
    /// The tenant's slug.
    pub namespace: String,
    pub name: Option<String>,
    pub tag: String,
    pub source: SandboxId,
    pub created_at: UnixMillis,
}

impl SnapshotInfo {
    /// What can be given wherever a template is asked for.
    pub fn id(&self) -> String {
        match &self.name {
            Some(name) => format!("{}/{name}:{}", self.namespace, self.tag),
            None => format!("{}:{}", self.template, self.tag),
        }
    }

    pub fn full_name(&self) -> Option<String> {
        let name = self.name.as_ref()?;
        Some(format!("{}/{name}", self.namespace))
    }
}

/// Under what a new build is kept.
struct Label {
    name: Option<String>,
    tag: String,
}

impl Control {
    /// Captures the files of a running sandbox, which goes on. The same name again adds a build,
    /// and the tag moves to it.
    pub async fn create_snapshot(
        self: &Arc<Self>,
        tenant: &Tenant,
        id: &SandboxId,
        name: Option<&str>,
    ) -> Result<SnapshotInfo> {
        let label = Label::parse(tenant, name)?;
        let (control, tenant, id) = (Arc::clone(self), tenant.clone(), id.clone());
        let work = async move {
            control.running(&tenant, &id).await?;
            let (taken, _hold) = control.capture(&tenant, &id).await?;
            let info = control.keep(&tenant, taken, label).await?;
            tracing::info!(snapshot = info.id(), "snapshot kept");
            let data = serde_json::Map::from_iter([("snapshot_id".to_owned(), info.id().into())]);
            control.note_event(&id, "snapshotted", data);
            Ok(info)
        };
        let made = self.finish(work.in_current_span()).await;
        if made.is_err() {
            self.sweep_later();
        }
        made
    }

    /// All of the tenant's, in no particular order.
    pub fn snapshots(&self, tenant: &Tenant) -> Vec<SnapshotInfo> {
        self.snapshots
            .of(&tenant.id)
            .iter()
            .flat_map(|entry| {
                entry.tags.values().filter_map(|tag| {
                    let build = entry.build(&tag.tag)?;
                    Some(info(tenant, &entry.row, build, tag))
                })
            })
            .collect()
    }

    /// Forgets a snapshot with all of its builds and tags. Refused while sandboxes stand on it;
    /// what other snapshots stand on stays on disk until they are gone.
    pub(crate) async fn delete_snapshot(
        self: &Arc<Self>,
        tenant: &Tenant,
        reference: &Reference,
    ) -> Result<()> {
        let (control, tenant, reference) = (Arc::clone(self), tenant.clone(), reference.clone());
        let work = async move {
            let _writing = control.snapshots.writing.lock().await;
            let entry = control.own_snapshot(&tenant, &reference)?;
            let users = control.users_of(&entry);
            if let Some(users) = described(&users) {
                let snapshot = reference.name;
                return Err(Error::SnapshotInUse { snapshot, users });
            }
            let template = &entry.row.template;
            let deleted = control.store.delete_snapshot(template).await;
            follow(deleted, || control.snapshots.remove(template))?;
            tracing::info!(template = %entry.row.template, "snapshot deleted");
            Ok(())
        };
        self.finish(work.in_current_span()).await?;
        self.sweep_later();
        Ok(())
    }

    /// Makes an image that is doomed and held.
    pub(crate) async fn capture(
        &self,
        tenant: &Tenant,
        id: &SandboxId,
    ) -> Result<(Snapshot, ImageHold)> {
        let image = TemplateId::random();
        let hold = self.snapshots.hold(&image);
        let doomed = self.store.doom_image(&image).await;
        follow(doomed, || self.snapshots.doom(&image))?;
        match timeout(CAPTURE_LIMIT, self.node.snapshot(id, image)).await {
            Ok(Ok(snapshot)) => Ok((snapshot, hold)),
            Ok(Err(NodeError::SandboxNotFound(_))) => Err(self.not_found(tenant, id).await),
            Ok(Err(NodeError::WrongState { state, .. })) => Err(match state {
                SandboxState::Paused => Error::SandboxPaused { id: id.clone() },
                _ => Error::SandboxEnding { id: id.clone() },
            }),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(Error::Timeout {
                what: "taking the snapshot",
                limit: CAPTURE_LIMIT,
            }),
        }
    }

    async fn keep(&self, tenant: &Tenant, taken: Snapshot, label: Label) -> Result<SnapshotInfo> {
        let _writing = self.snapshots.writing.lock().await;
        let built = |name: &String| self.templates.by_name(&tenant.id, name).is_some();
        if let Some(name) = label.name.as_ref().filter(|name| built(name)) {
            return Err(Error::NameTaken {
                name: name.clone(),
                by: "a template of yours",
            });
        }
        let known = label
            .name
            .as_ref()
            .and_then(|name| self.snapshots.row_named(&tenant.id, name));
        let row = known.unwrap_or_else(|| SnapshotRow {
            template: TemplateId::random(),
            tenant: tenant.id.clone(),
            name: label.name,
            created_at: taken.created_at,
        });
        let build = SnapshotBuildRow {
            id: Uuid::now_v7().to_string(),
            template: row.template.clone(),
            image: taken.id,
            source: taken.source,
            base: taken.template,
            base_build: taken.build,
            limits: taken.limits,
            tier: Some(taken.tier),
            created_at: taken.created_at,
        };
        let tag = SnapshotTagRow {
            template: row.template.clone(),
            tag: label.tag,
            build: build.id.clone(),
            assigned_at: UnixMillis::now(),
        };
        let written = self.store.insert_snapshot_build(&row, &build, &tag).await;
        let info = info(tenant, &row, &build, &tag);
        follow(written, || self.snapshots.add(row, build, tag))?;
        Ok(info)
    }

    /// The tenant's own, whatever the tag.
    pub(crate) fn own_snapshot(
        &self,
        tenant: &Tenant,
        reference: &Reference,
    ) -> Result<CatalogEntry> {
        let unknown = || Error::TemplateNotFound(reference.name.clone());
        match self.look_up_template(tenant, reference)? {
            None => Err(unknown()),
            Some(Found::BuiltIn(_) | Found::Built(_)) => {
                Err(Error::TemplateForbidden(reference.name.clone()))
            }
            Some(Found::Snapshot(entry)) => Ok(*entry),
        }
    }

    /// Sandboxes that stand on it, and those that are about to.
    fn users_of(&self, entry: &CatalogEntry) -> Vec<String> {
        let images = || entry.builds.iter().map(|build| &build.image);
        let running = self.specs_in_use().filter_map(|spec| {
            let image = spec.snapshot.as_ref()?;
            images()
                .any(|own| own == image)
                .then(|| spec.id.to_string())
        });
        let held = images().filter(|image| self.snapshots.is_held(image));
        let held = held.map(|_| "that is being made".to_owned());
        running.chain(held).collect()
    }

    /// Clears away what is doomed and free, without making anybody wait.
    pub(crate) fn sweep_later(self: &Arc<Self>) {
        if self.snapshots.doomed().is_empty()
            || self.snapshots.sweep_waits.swap(true, Ordering::AcqRel)
        {
            return;
        }
        let control = Arc::clone(self);
        self.in_background(async move {
            let _sweeping = control.snapshots.sweeping.lock().await;
            control
                .snapshots
                .sweep_waits
                .store(false, Ordering::Release);
            control.sweep().await;
        });
    }

    async fn sweep(&self) {
        // With one gone, nothing may stand on the next any more.
        while self.sweep_once().await {}
    }

    /// Whether something was removed.
    async fn sweep_once(&self) -> bool {
        let mut removed = false;
        for image in self.snapshots.doomed() {
            match timeout(REMOVE_LIMIT, self.node.delete_snapshot(&image)).await {
                Ok(Ok(())) => {
                    let forgotten = self.store.forget_image(&image).await;
                    let forgotten = follow(forgotten, || {
                        self.snapshots.forget(&image);
                        removed = true;
                    });
                    if let Err(error) = forgotten {
                        tracing::warn!(%image, error = %Chain(&error), "could not forget an image");
                    }
                }
                Ok(Err(NodeError::InUse { .. })) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%image, error = %Chain(&error), "could not remove an image");
                }
                Err(_) => tracing::warn!(%image, "removing an image takes too long"),
            }
        }
        removed
    }
}

pub(crate) fn described(users: &[String]) -> Option<String> {
    match users {
        [] => None,
        [one] => Some(format!("sandbox {one}")),
        [first, others @ ..] => Some(format!("sandbox {first} and {} more", others.len())),
    }
}

impl Label {
    fn parse(tenant: &Tenant, name: Option<&str>) -> Result<Self> {
        let Some(name) = name else {
            return Ok(Self {
                name: None,
                tag: DEFAULT_TAG.to_owned(),
            });
        };
        let reference = own_reference(tenant, name)?;
        let tag = not_a_uuid(reference.tag.unwrap_or_else(|| DEFAULT_TAG.to_owned()))?;
        Ok(Self {
            name: Some(reference.name),
            tag,
        })
    }
}

/// Builds are found by their UUIDs where a tag may stand.
pub(crate) fn not_a_uuid(tag: String) -> Result<String> {
    if Uuid::try_parse(&tag).is_ok() {
        return Err(Error::Invalid(format!("Invalid tag '{tag}': it is a UUID")));
    }
    Ok(tag)
}

fn info(
    tenant: &Tenant,
    row: &SnapshotRow,
    build: &SnapshotBuildRow,
    tag: &SnapshotTagRow,
) -> SnapshotInfo {
    SnapshotInfo {
        template: row.template.clone(),
        namespace: tenant.slug.clone(),
        name: row.name.clone(),
        tag: tag.tag.clone(),
        source: build.source.clone(),
        created_at: tag.assigned_at,
    }
}
