//! Starting a build, watching it and cancelling it; and going on with it after a restart.

use std::{sync::Arc, time::Duration};

use soulbox_build::BuildFailure;
use soulbox_runtime::LogLevel;
use soulbox_store::{BuildRow, BuildStatus, TemplateRow};
use soulbox_types::{Chain, Secret, TemplateId, UnixMillis};
use tokio::time::timeout;
use tracing::Instrument;

use super::{
    builtin::SERVER_TENANT,
    definition::BuildDefinition,
    log::{self, BuildLogEntry, BuildLogPage},
    scheduler::{BuildScheduler, CANCELLED, Job, Stages},
    templates::Built,
};
use crate::{Control, Error, Reference, Result, Tenant, committed::held, template::Found};

/// For a cancelled build to be gone. It goes on to end afterwards.
const CANCEL_LIMIT: Duration = Duration::from_secs(30);

/// A build as its owner sees it.
#[derive(Debug, Clone)]
pub struct BuildInfo {
    pub template: TemplateId,
    pub row: BuildRow,
}

impl Control {
    /// Returns as soon as the build is on its way.
    pub async fn start_build(
        self: &Arc<Self>,
        tenant: &Tenant,
        template: &str,
        build: &str,
        definition: BuildDefinition,
    ) -> Result<()> {
        let scheduler = Arc::clone(self.scheduler()?);
        let (built, row) = self.own_build(tenant, template, build)?;
        if row.status != BuildStatus::Waiting {
            return Err(not_waiting(&row));
        }
        definition.check()?;
        self.check_build_limit(&scheduler, tenant)?;
        let (control, tenant) = (Arc::clone(self), tenant.clone());
        let work = async move {
            control
                .begin(&scheduler, &tenant, built, row, definition)
                .await
        };
        self.finish(work.in_current_span()).await
    }

    async fn begin(
        self: &Arc<Self>,
        scheduler: &Arc<BuildScheduler>,
        tenant: &Tenant,
        built: Built,
        row: BuildRow,
        mut definition: BuildDefinition,
    ) -> Result<()> {
        let stages = self.stages(tenant, &mut definition);
        // What is found now holds, whatever its name means after a restart.
        let request = serde_json::to_string(&definition)
            .map_err(|_| Error::Internal("a build could not be written down"))?;
        let request = Secret::new(request);
        let sealed = self.vault.seal(&tenant.id, &row.id, &request)?;
        let at = UnixMillis::now();
        let started = BuildRow {
            status: BuildStatus::Building,
            started_at: Some(at),
            ..row.clone()
        };
        let _writing = self.snapshots.writing.lock().await;
        let written = held(self.store.start_build(&row.id, &sealed, at).await)?;
        if matches!(written, Ok(false)) {
            return Err(not_waiting(&row));
        }
        scheduler.launch(job(built.row, started.clone(), definition, stages, false));
        // In this order: whoever sees that it is being built can cancel it.
        self.templates
            .change(&row.template, &row.id, |row| *row = started);
        written?;
        Ok(())
    }

    /// After a start: what was being built is built again, or fails with the reason why not.
    pub(crate) async fn resume_builds(self: &Arc<Self>) {
        let all = self.templates.all();
        let builds = all.iter().flat_map(|built| {
            let builds = built.builds.iter();
            let under_way = builds.filter(|build| build.status == BuildStatus::Building);
            under_way.map(move |build| (built, build))
        });
        let mut builds: Vec<_> = builds.collect();
        builds.sort_by_key(|(_, row)| row.started_at);
        for (built, row) in builds {
            match self.resume_build(built, row.clone()).await {
                Ok(()) => tracing::info!(build = row.id, "build resumed"),
                Err(error) => self.give_up(row, &error).await,
            }
        }
    }

    async fn resume_build(self: &Arc<Self>, built: &Built, row: BuildRow) -> Result<()> {
        let scheduler = self.scheduler()?;
        if built.row.deleted_at.is_some() {
            return Err(Error::Invalid(CANCELLED.to_owned()));
        }
        if built.row.tenant.as_str() == SERVER_TENANT {
            return self.resume_builtin(built, row);
        }
        let sealed = self.store.build_request(&row.id).await?;
        let sealed = sealed.ok_or(Error::Internal(
            "what was to be built is not there any more",
        ))?;
        let request = self.vault.open(&built.row.tenant, &row.id, &sealed)?;
        let mut definition: BuildDefinition = serde_json::from_str(request.expose())
            .map_err(|_| Error::Internal("what was to be built cannot be read any more"))?;
        let tenant = self.keys.by_id(&built.row.tenant);
        let tenant = tenant.ok_or(Error::Internal("the team of the build is gone"))?;
        let stages = self.stages(&tenant, &mut definition);
        scheduler.launch(job(built.row.clone(), row, definition, stages, true));
        Ok(())
    }

    async fn give_up(&self, row: &BuildRow, error: &Error) {
        tracing::warn!(build = row.id, error = %Chain(error), "a build cannot go on");
        let message = format!("the server was restarted and could not go on: {error}");
        if let Some(scheduler) = &self.scheduler {
            let failure = BuildFailure::new("base", message);
            scheduler.fail(row, failure).await;
        } else if let Err(error) = self.end_build(row, message).await {
            tracing::error!(build = row.id, error = %Chain(&error), "could not record the end of a build");
        }
    }

    /// A build of a template that this tenant may see.
    pub fn build(&self, tenant: &Tenant, template: &str, build: &str) -> Result<BuildInfo> {
        let (built, row) = self.own_build(tenant, template, build)?;
        Ok(BuildInfo {
            template: built.row.id,
            row,
        })
    }

    /// Its log. Read its state first: when that is final, the log is whole.
    pub async fn build_log(
        &self,
        build: &BuildInfo,
        page: BuildLogPage,
        level: LogLevel,
    ) -> Result<Vec<BuildLogEntry>> {
        let path = self.scheduler()?.log_file(&build.row.id);
        let reading = tokio::task::spawn_blocking(move || log::read(&path, page, level));
        match reading.await {
            Ok(Ok(entries)) => Ok(entries),
            Ok(Err(error)) => {
                tracing::error!(build = build.row.id, error = %Chain(&error), "could not read a build's log");
                Err(Error::Internal("the log of the build cannot be read"))
            }
            Err(_) => Err(Error::Internal("reading the log was interrupted")),
        }
    }

    /// When it returns the build has ended, or ends soon.
    pub async fn cancel_build(
        self: &Arc<Self>,
        tenant: &Tenant,
        template: &str,
        build: &str,
    ) -> Result<()> {
        let (built, row) = self.own_build(tenant, template, build)?;
        if !built.owned_by(tenant) {
            return Err(Error::TemplateForbidden(template.to_owned()));
        }
        match row.status {
            BuildStatus::Waiting => {
                let control = Arc::clone(self);
                let work = async move {
                    let _writing = control.snapshots.writing.lock().await;
                    control.cancel_waiting(&row, "before it was started").await
                };
                self.finish(work.in_current_span()).await
            }
            BuildStatus::Building => {
                self.stop_build(&row.id).await;
                Ok(())
            }
            BuildStatus::Error
                if row
                    .reason
                    .as_ref()
                    .is_some_and(|r| r.message.starts_with(CANCELLED)) =>
            {
                Ok(())
            }
            BuildStatus::Ready | BuildStatus::Error => Err(Error::BuildEnded(row.id)),
        }
    }

    pub(crate) async fn stop_build(&self, build: &str) {
        let running = self
            .scheduler
            .as_ref()
            .and_then(|scheduler| scheduler.running(build));
        if let Some(running) = running {
            running.cancel.cancel();
            if timeout(CANCEL_LIMIT, running.ended.cancelled())
                .await
                .is_err()
            {
                tracing::warn!(build, "a cancelled build takes long to end");
            }
        }
    }

    /// A build of the tenant's, or of the server's.
    fn own_build(&self, tenant: &Tenant, template: &str, build: &str) -> Result<(Built, BuildRow)> {
        let reference = Reference::parse(template)?;
        let built = match self.look_up_usable(tenant, &reference)? {
            Some(Found::Built(built)) => *built,
            Some(Found::BuiltIn(_) | Found::Snapshot(_)) => {
                return Err(Error::BuildNotFound(build.to_owned()));
            }
            None => return Err(Error::TemplateNotFound(template.to_owned())),
        };
        let server = built.row.tenant.as_str() == SERVER_TENANT;
        if !server && !built.owned_by(tenant) {
            return Err(Error::TemplateOfAnother(template.to_owned()));
        }
        let row = built.build(build).cloned();
        let row = row.ok_or_else(|| Error::BuildNotFound(build.to_owned()))?;
        Ok((built, row))
    }
}

fn not_waiting(row: &BuildRow) -> Error {
    Error::Invalid(format!(
        "build {} is {} already: ask for another one",
        row.id,
        match row.status {
            BuildStatus::Waiting | BuildStatus::Building => "started",
            BuildStatus::Ready => "finished",
            BuildStatus::Error => "ended",
        }
    ))
}

fn job(
    template: TemplateRow,
    row: BuildRow,
    definition: BuildDefinition,
    stages: Stages,
    resumed: bool,
) -> Job {
    Job {
        row,
        tenant: template.tenant,
        name: template.name.unwrap_or_default(),
        stages,
        secrets: definition.secrets(),
        seconds: Vec::new(),
        start: definition.start,
        ready: definition.ready,
        force: definition.force,
        resumed,
    }
}
