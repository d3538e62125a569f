//! What takes room on the disk, and freeing what can be made again.
//!
//! A tenant sees what is its own. What is shared by all, the cache of builds and images, is shown to
//! and removed by the operator's tenant alone: the one whose key is in the data folder.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use soulbox_build::BuildDisk;
use soulbox_runtime::Visited;
use soulbox_template::Template;
use soulbox_types::{Chain, SandboxState};
use tokio::time::{Instant, sleep};

use crate::{
    Control, Error, Result, Tenant,
    building::{BuildScheduler, Collecting},
    keys::DEFAULT_TENANT,
};

/// How long a prune waits for a collection that is under way.
const COLLECTING_LIMIT: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DiskKind {
    Running,
    Paused,
    Broken,
    Snapshots,
    Volumes,
    Templates,
    EndedLogs,
    BuildCache,
}

impl DiskKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Broken => "broken",
            Self::Snapshots => "snapshots",
            Self::Volumes => "volumes",
            Self::Templates => "templates",
            Self::EndedLogs => "ended_logs",
            Self::BuildCache => "build_cache",
        }
    }
}

/// One kind of things on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskItem {
    pub kind: DiskKind,
    pub count: u64,
    /// What they really take: holes and what is shared by several of the kind are not counted twice.
    pub bytes: u64,
    /// What [`Control::prune_disk`] frees of it.
    pub reclaimable: u64,
}

impl Control {
    /// Whether a tenant runs this server: then it may see and free what is everybody's.
    pub fn is_operator(tenant: &Tenant) -> bool {
        tenant.slug == DEFAULT_TENANT
    }

    pub async fn disk_use(&self, tenant: &Tenant) -> Result<Vec<DiskItem>> {
        let used = self.node.disk_use(&tenant.id).await?;
        let bytes: HashMap<_, _> = used.sandboxes.into_iter().collect();
        let (mut running, mut paused) = ((0, 0), (0, 0));
        self.visit(tenant, |visited: Visited<'_>| {
            let sum = match visited.state {
                SandboxState::Paused => &mut paused,
                _ => &mut running,
            };
            sum.0 += 1;
            sum.1 += bytes.get(&visited.spec.id).copied().unwrap_or(0);
        });
        let broken = self.broken(tenant).await?;
        let broken = broken.iter().map(|each| each.broken.disk_bytes);
        let own = self.snapshots.of(&tenant.id).into_iter();
        let own: HashSet<_> = own
            .flat_map(|entry| entry.builds)
            .map(|build| build.image)
            .collect();
        let snapshots = self.node.snapshots().into_iter();
        let snapshots: Vec<u64> = snapshots
            .filter(|snapshot| own.contains(&snapshot.id))
            .map(|snapshot| snapshot.bytes)
            .collect();
        let disk = self.build_disk().await?;
        let templates = self.template_bytes(tenant, &disk);
        let mut items = vec![
            item(DiskKind::Running, running, 0),
            item(DiskKind::Paused, paused, 0),
            item(DiskKind::Broken, summed(broken), 0),
            item(DiskKind::Snapshots, summed(snapshots.into_iter()), 0),
            item(DiskKind::Volumes, self.volume_bytes(tenant).await?, 0),
            item(DiskKind::Templates, templates, 0),
            item(DiskKind::EndedLogs, used.ended_logs, used.ended_logs.1),
        ];
        if Self::is_operator(tenant) {
            items.push(item(DiskKind::BuildCache, disk.unused, disk.unused.1));
        }
        Ok(items)
    }

    /// Frees what can be made again or is only history: the logs of ended sandboxes; for the operator
    /// also builds that nothing means, steps, image layers and uploads that nothing uses. Returns what
    /// there was of each and is gone.
    pub async fn prune_disk(self: &Arc<Self>, tenant: &Tenant) -> Result<Vec<DiskItem>> {
        let before = self.disk_use(tenant).await?;
        self.node.clear_ended_logs(&tenant.id).await;
        if Self::is_operator(tenant)
            && let Some(scheduler) = self.scheduler.clone()
        {
            let collecting = self.begin_collecting().await?;
            let control = Arc::clone(self);
            self.finish(async move {
                let _collecting = collecting;
                control.collect(&scheduler).await?;
                control.prune_builds(&scheduler).await;
                Ok(())
            })
            .await?;
        }
        let after = self.disk_use(tenant).await?;
        let freed = before.into_iter().zip(after).map(|(before, after)| {
            let count = before.count.saturating_sub(after.count);
            let bytes = before.bytes.saturating_sub(after.bytes);
            item(before.kind, (count, bytes), bytes)
        });
        let freeable =
            |item: &DiskItem| matches!(item.kind, DiskKind::EndedLogs | DiskKind::BuildCache);
        Ok(freed.filter(freeable).collect())
    }

    async fn prune_builds(&self, scheduler: &BuildScheduler) {
        // What cannot be read may stand on any of them.
        if self.node.keeps_unknown() {
            return;
        }
        let keep = self.builds_in_use(scheduler);
        scheduler.config.builder.prune(keep).await;
    }

    /// With builds that nothing means counted as gone: that is what a prune begins with.
    async fn build_disk(&self) -> Result<BuildDisk> {
        let Some(scheduler) = &self.scheduler else {
            return Ok(BuildDisk::default());
        };
        let keep = self.builds_in_use(scheduler);
        let used = self.used_builds();
        let going = self.templates.unused(&used);
        let measured = scheduler.config.builder.disk_use(going, keep).await;
        let mut disk = measured.map_err(|error| {
            tracing::warn!(error = %Chain(&error), "could not measure what builds take");
            Error::Internal("what builds take of the disk could not be measured")
        })?;
        if self.node.keeps_unknown() {
            disk.unused.1 = 0;
        }
        Ok(disk)
    }

    fn builds_in_use(&self, scheduler: &BuildScheduler) -> Vec<Arc<Template>> {
        let templates = &scheduler.config.templates;
        let used = self.used_builds();
        used.iter().filter_map(|id| templates.build(id)).collect()
    }

    /// How many templates, and the layers below them, each once.
    fn template_bytes(&self, tenant: &Tenant, disk: &BuildDisk) -> (u64, u64) {
        let Some(scheduler) = &self.scheduler else {
            return (0, 0);
        };
        let own = self.templates.all().into_iter();
        let own: Vec<_> = own
            .filter(|built| built.row.tenant == tenant.id && built.row.deleted_at.is_none())
            .collect();
        let mut layers: HashMap<PathBuf, u64> = HashMap::new();
        for build in own.iter().flat_map(|built| &built.builds) {
            if let Some(template) = scheduler.config.templates.build(&build.id) {
                let below = disk.of(&template);
                layers.extend(below.map(|(path, bytes)| (path.to_owned(), bytes)));
            }
        }
        (own.len() as u64, layers.values().sum())
    }

    async fn volume_bytes(&self, tenant: &Tenant) -> Result<(u64, u64)> {
        let Some(volumes) = self.config.volumes.clone() else {
            return Ok((0, 0));
        };
        let rows = self.store.volumes(&tenant.id).await?;
        let measured = tokio::task::spawn_blocking(move || {
            summed(rows.iter().map(|row| volumes.bytes_on_disk(&row.id)))
        });
        let failed = |_| Error::Internal("what volumes take of the disk could not be measured");
        measured.await.map_err(failed)
    }

    /// One at a time, as the collection that comes by itself.
    async fn begin_collecting(&self) -> Result<Collecting> {
        let until = Instant::now() + COLLECTING_LIMIT;
        while self.collecting.swap(true, Ordering::AcqRel) {
            if Instant::now() >= until {
                return Err(Error::Timeout {
                    what: "removing what nothing uses",
                    limit: COLLECTING_LIMIT,
                });
            }
            sleep(LOOK_AGAIN).await;
        }
        Ok(Collecting(Arc::clone(&self.collecting)))
    }
}

fn item(kind: DiskKind, (count, bytes): (u64, u64), reclaimable: u64) -> DiskItem {
    DiskItem {
        kind,
        count,
        bytes,
        reclaimable,
    }
}

fn summed(all: impl Iterator<Item = u64>) -> (u64, u64) {
    all.fold((0, 0), |(count, sum), bytes| (count + 1, sum + bytes))
}
