//! What no tag means and nothing stands on goes: first the build, later its row and its log.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use soulbox_store::{BuildRow, BuildStatus};
use soulbox_types::{Chain, TemplateId, UnixMillis};
use tokio::time::timeout;

use super::{scheduler::BuildScheduler, templates::Built};
use crate::{Control, Result, committed::follow};

const COLLECT_LIMIT: Duration = Duration::from_hours(1);
/// For how long one can ask about a build that is of no use any more.
const HISTORY: Duration = Duration::from_hours(7 * 24);
/// A client uploads its files between asking for a build and starting it.
const UPLOAD_TIME: Duration = Duration::from_hours(24);

/// Lets the next one collect, whatever becomes of this one.
pub(crate) struct Collecting(pub(crate) Arc<AtomicBool>);

impl Drop for Collecting {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Control {
    /// Without making anybody wait. One at a time.
    pub(crate) fn collect_later(self: &Arc<Self>) {
        let Some(scheduler) = self.scheduler.clone() else {
            return;
        };
        if self.collecting.swap(true, Ordering::AcqRel) {
            return;
        }
        let control = Arc::downgrade(self);
        let collecting = Collecting(Arc::clone(&self.collecting));
        self.in_background(async move {
            let _collecting = collecting;
            if let Some(control) = control.upgrade()
                && let Err(error) = control.collect(&scheduler).await
            {
                tracing::warn!(error = %Chain(&error), "could not remove builds that nothing needs");
            }
        });
    }

    pub(crate) async fn collect(&self, scheduler: &BuildScheduler) -> Result<()> {
        self.end_abandoned().await?;
        if self.node.keeps_unknown() {
            // What cannot be read may stand on any of them.
            tracing::warn!("no builds are removed while something that is kept cannot be read");
            return Ok(());
        }
        for build in self.templates.take_unused(|| self.used_builds()) {
            let (templates, id) = (Arc::clone(&scheduler.config.templates), build.id.clone());
            let forgotten = tokio::task::spawn_blocking(move || templates.forget(&id)).await;
            if let Ok(Err(error)) = forgotten {
                tracing::warn!(build = build.id, error = %Chain(&error), "could not remove a build");
                continue;
            }
            self.store.mark_build_removed(&build.id).await?;
            tracing::info!(template = %build.template, build = build.id, "build removed");
        }
        for built in self.templates.all() {
            self.forget_old(scheduler, &built).await?;
        }
        let templates = &scheduler.config.templates;
        let used = self.used_builds();
        let keep = used.iter().filter_map(|build| templates.build(build));
        let collecting = scheduler.config.builder.collect_garbage(keep.collect());
        if timeout(COLLECT_LIMIT, collecting).await.is_err() {
            tracing::warn!("collecting the garbage of builds takes too long");
        }
        Ok(())
    }

    /// What sandboxes and snapshots stand on. From memory.
    pub(crate) fn used_builds(&self) -> HashSet<String> {
        let snapshots = self.node.snapshots().into_iter();
        self.specs_in_use()
            .filter_map(|spec| spec.build.clone())
            .chain(snapshots.filter_map(|snapshot| snapshot.build))
            .collect()
    }

    /// Sandboxes of a template, and those that are about to be.
    pub(crate) fn users_of_template(&self, built: &Built) -> Vec<String> {
        let own = |build: &String| built.builds.iter().any(|row| row.id == *build);
        let running = self.specs_in_use();
        let running = running.filter(|spec| spec.build.as_ref().is_some_and(own));
        let running = running.map(|spec| {
            // Whose template is public learns nothing about those who use it.
            let ours = spec.tenant == built.row.tenant;
            let name = if ours {
                spec.id.as_str()
            } else {
                "of another team"
            };
            (!ours, name.to_owned())
        });
        let held = built
            .builds
            .iter()
            .filter(|b| self.templates.is_held(&b.id));
        let held = held.map(|_| (true, "that is being made".to_owned()));
        let mut users: Vec<_> = running.chain(held).collect();
        users.sort();
        users.into_iter().map(|(_, name)| name).collect()
    }

    async fn end_abandoned(&self) -> Result<()> {
        let _writing = self.snapshots.writing.lock().await;
        let now = UnixMillis::now();
        for build in self.templates.all().iter().flat_map(|built| &built.builds) {
            if build.status == BuildStatus::Waiting && build.created_at.plus(UPLOAD_TIME) < now {
                self.cancel_waiting(build, "it was never started").await?;
            }
        }
        Ok(())
    }

    async fn forget_old(&self, scheduler: &BuildScheduler, built: &Built) -> Result<()> {
        let now = UnixMillis::now();
        let deleted = built.row.deleted_at.is_some();
        let tagged = |build: &BuildRow| built.tags.values().any(|tag| tag.build == build.id);
        let mut left = built.builds.len();
        for build in &built.builds {
            let useless = match build.status {
                BuildStatus::Error => true,
                BuildStatus::Ready => build.removed && !tagged(build),
                BuildStatus::Waiting | BuildStatus::Building => false,
            };
            let old = build.finished_at.is_some_and(|at| at.plus(HISTORY) < now);
            if useless && (old || deleted) {
                self.forget_build(scheduler, &built.row.id, &build.id)
                    .await?;
                left -= 1;
            }
        }
        if deleted && left == 0 {
            let forgotten = self.store.forget_template(&built.row.id).await;
            follow(forgotten, || self.templates.forget(&built.row.id))?;
        }
        Ok(())
    }

    async fn forget_build(
        &self,
        scheduler: &BuildScheduler,
        template: &TemplateId,
        build: &str,
    ) -> Result<()> {
        let forgotten = self.store.forget_build(build).await;
        follow(forgotten, || self.templates.forget_build(template, build))?;
        let log = scheduler.log_file(build);
        let removed = tokio::task::spawn_blocking(move || std::fs::remove_file(log)).await;
        if let Ok(Err(error)) = removed
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(build, error = %Chain(&error), "could not remove a build's log");
        }
        Ok(())
    }
}
