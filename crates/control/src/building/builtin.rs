//! Templates that the server brings along as definitions, and builds when they are first wanted.
//!
//! A create that wants one waits for its build as long as its client does, and is told how far it is
//! when that takes longer; all wait for the same one. One whose definition has changed serves in its old form until the new one is ready.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt;
use sha2::{Digest, Sha256};
use soulbox_build::Stage;
use soulbox_store::{BuildRow, BuildStatus, TemplateRow};
use soulbox_types::{Chain, Limits, TemplateId, UnixMillis};
use tokio::time::timeout;
use tracing::Instrument;
use uuid::Uuid;

use super::{
    BuildInfo,
    scheduler::{BuildScheduler, Job},
    templates::Built,
};
use crate::{BuiltIn, Control, Error, Result, committed::follow, reference::DEFAULT_TAG};

/// Whose the built-in templates are: no tenant's.
pub const SERVER_TENANT: &str = "00000000-0000-0000-0000-000000000000";
/// A build that failed is tried again by the next create. Should that one fail as well, the next
/// try has to wait: for this long at first, then for twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_mins(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(15);

impl Control {
    /// Builds it, unless that is done or under way.
    pub async fn build_builtin(self: &Arc<Self>, name: &str) -> Result<BuildInfo> {
        let scheduler = Arc::clone(self.scheduler()?);
        let definition = scheduler.builtin(name).ok_or_else(|| {
            let known: Vec<_> = scheduler.config.builtins.iter().map(|b| &*b.name).collect();
            Error::UnknownBuiltIn {
                name: name.to_owned(),
                known: known.join(", "),
            }
        })?;
        let (control, name) = (Arc::clone(self), name.to_owned());
        let work = async move {
            let _writing = control.snapshots.writing.lock().await;
            let built = control.templates.by_global_name(&name);
            let built = built.ok_or(Error::TemplateNotFound(name))?;
            if let Some(row) = current(&built, &definition) {
                return Ok(info(row));
            }
            control.launch_builtin(&scheduler, &built, definition).await
        };
        self.finish(work.in_current_span()).await
    }

    /// With the catalog's lock held.
    async fn launch_builtin(
        &self,
        scheduler: &Arc<BuildScheduler>,
        built: &Built,
        definition: BuiltIn,
    ) -> Result<BuildInfo> {
        let now = UnixMillis::now();
        let row = BuildRow {
            id: Uuid::now_v7().to_string(),
            template: built.row.id.clone(),
            status: BuildStatus::Building,
            tags: vec![DEFAULT_TAG.to_owned()],
            limits: definition.limits,
            tier: None,
            version: Some(definition.version.clone()),
            reason: None,
            created_at: now,
            started_at: Some(now),
            finished_at: None,
            removed: false,
        };
        let written = self.store.insert_build(&built.row, &row).await;
        follow(written, || {
            tracing::info!(
                name = definition.name,
                build = row.id,
                "building a template of the server"
            );
            scheduler.launch(job(built, row.clone(), definition, false));
            self.templates.add(&built.row, row.clone());
        })?;
        Ok(info(&row))
    }

    pub(crate) fn resume_builtin(&self, built: &Built, row: BuildRow) -> Result<()> {
        let scheduler = self.scheduler()?;
        let name = built.row.name.as_deref().unwrap_or_default();
        let definition = scheduler
            .builtin(name)
            .filter(|definition| row.version.as_ref() == Some(&definition.version));
        let definition = definition
            .ok_or_else(|| Error::Invalid("the definition of the template changed".to_owned()))?;
        scheduler.launch(job(built, row, definition, true));
        Ok(())
    }

    /// Makes one that was never built usable, if that does not take longer than `patience`.
    pub(crate) async fn await_builtin(
        self: &Arc<Self>,
        name: &str,
        patience: Duration,
    ) -> Result<()> {
        let scheduler = Arc::clone(self.scheduler()?);
        let definition = scheduler
            .builtin(name)
            .ok_or_else(|| Error::TemplateNotFound(name.to_owned()))?;
        if let Some(failed) = self.recent_failure(name, &definition) {
            return Err(failed);
        }
        let build = self.build_builtin(name).await?;
        let running = scheduler.running(&build.row.id);
        if let Some(running) = &running {
            drop(timeout(patience, running.ended.cancelled()).await);
        }
        let built = self.templates.by_global_name(name);
        let row = built.as_ref().and_then(|built| built.build(&build.row.id));
        match row.map(|row| (row.status, &row.reason)) {
            Some((BuildStatus::Ready, _)) => Ok(()),
            Some((BuildStatus::Error, Some(reason))) => Err(Error::TemplateBuildFailed {
                name: name.to_owned(),
                message: reason.message.clone(),
            }),
            _ => Err(Error::TemplateBuilding {
                name: name.to_owned(),
                progress: running.map_or_else(
                    || "it has just begun".to_owned(),
                    |running| running.progress.told(),
                ),
            }),
        }
    }

    fn recent_failure(&self, name: &str, definition: &BuiltIn) -> Option<Error> {
        let built = self.templates.by_global_name(name)?;
        let newest = built.newest()?;
        let reason = newest.reason.as_ref()?;
        let failed = |build: &&BuildRow| {
            build.status == BuildStatus::Error
                && build.version.as_ref() == Some(&definition.version)
        };
        let failures = built.builds.iter().rev().take_while(failed).count();
        let again = newest.finished_at?.plus(pause(failures));
        let left = again.remaining(UnixMillis::now());
        (!left.is_zero()).then(|| Error::TemplateBuildFailed {
            name: name.to_owned(),
            message: format!(
                "{} (it was tried {failures} times; a create after {} s tries again)",
                reason.message,
                left.as_secs() + 1
            ),
        })
    }

    /// Builds the new form of one that is being used in its old form.
    pub(crate) fn renew_builtin(self: &Arc<Self>, template: &TemplateId) {
        let Some(scheduler) = &self.scheduler else {
            return;
        };
        let owner = self.templates.owner(template);
        if owner.is_none_or(|owner| owner.as_str() != SERVER_TENANT) {
            return;
        }
        let Some(built) = self.templates.by_id(template.as_str()) else {
            return;
        };
        let name = built.row.global_name.clone().unwrap_or_default();
        let Some(definition) = scheduler.builtin(&name) else {
            return;
        };
        if current(&built, &definition).is_some()
            || self.recent_failure(&name, &definition).is_some()
        {
            return;
        }
        let control = Arc::clone(self);
        self.in_background(async move {
            if let Err(error) = control.build_builtin(&name).await {
                tracing::warn!(name, error = %Chain(&error), "could not build a template of the server anew");
            }
        });
    }

    /// Of a template that has no build yet.
    pub(crate) fn unbuilt_limits(&self, built: &Built) -> Limits {
        let name = built.row.global_name.as_deref().unwrap_or_default();
        let definition = self.scheduler.as_ref().and_then(|w| w.builtin(name));
        definition.map_or(self.config.default_limits, |definition| definition.limits)
    }

    /// After a start: every definition has its name.
    pub(crate) async fn name_builtins(&self) -> Result<()> {
        let Some(scheduler) = &self.scheduler else {
            return Ok(());
        };
        for definition in &scheduler.config.builtins {
            let name = &definition.name;
            let row = TemplateRow {
                id: id_of(name)?,
                tenant: SERVER_TENANT
                    .parse()
                    .map_err(|_| Error::Internal("the server's tenant has no valid id"))?,
                name: Some(name.clone()),
                global_name: Some(name.clone()),
                public: true,
                created_at: UnixMillis::now(),
                deleted_at: None,
            };
            match self.templates.by_global_name(name) {
                Some(taken) if taken.row.id != row.id => {
                    tracing::warn!(name, "a tenant's template has the name of a built-in one");
                }
                Some(_) => {}
                None => {
                    let written = self.store.insert_template(&row).await;
                    follow(written, || self.templates.insert(row))?;
                }
            }
        }
        Ok(())
    }
}

impl BuildScheduler {
    fn builtin(&self, name: &str) -> Option<BuiltIn> {
        let all = self.config.builtins.iter();
        all.clone().find(|builtin| builtin.name == name).cloned()
    }
}

/// Before the next try, after so many in a row that failed.
fn pause(failures: usize) -> Duration {
    match failures {
        0 | 1 => Duration::ZERO,
        more => {
            let doubled = u32::try_from(more - 2).unwrap_or(u32::MAX).min(10);
            (FIRST_PAUSE * 2_u32.pow(doubled)).min(LONGEST_PAUSE)
        }
    }
}

/// The build of this definition that is ready or on its way.
fn current<'a>(built: &'a Built, definition: &BuiltIn) -> Option<&'a BuildRow> {
    built.builds.iter().rev().find(|build| {
        let alive = build.status == BuildStatus::Building
            || (build.status == BuildStatus::Ready && !build.removed);
        alive && build.version.as_ref() == Some(&definition.version)
    })
}

fn info(row: &BuildRow) -> BuildInfo {
    BuildInfo {
        template: row.template.clone(),
        row: row.clone(),
    }
}

fn job(built: &Built, row: BuildRow, definition: BuiltIn, resumed: bool) -> Job {
    let stage = Stage {
        base: definition.base,
        steps: definition.steps,
        lanes: definition.lanes,
    };
    Job {
        row,
        tenant: built.row.tenant.clone(),
        name: definition.name,
        stages: std::future::ready(Ok((vec![stage], Vec::new()))).boxed(),
        start: definition.start,
        ready: definition.ready,
        force: false,
        secrets: Vec::new(),
        seconds: definition.seconds,
        resumed,
    }
}

/// The same on every server, so that it can be written down.
fn id_of(name: &str) -> Result<TemplateId> {
    let digest = Sha256::digest(format!("soulbox built-in {name}"));
    hex::encode(digest)[..20]
        .parse()
        .map_err(|_| Error::Internal("a digest is no template id"))
}
