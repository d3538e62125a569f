//! Where builds run: in a queue, each in a task of its own, which sees to it that it ends.

use std::{
    collections::HashMap, panic::AssertUnwindSafe, path::PathBuf, pin::pin, sync::Arc,
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use soulbox_build::{BuildFailure, BuildLog, BuildRequest, Stage};
use soulbox_runtime::LogLevel;
use soulbox_store::{BuildReason, BuildRow, BuildStatus, Store, TemplateTagRow};
use soulbox_types::{Chain, TenantId, UnixMillis};
use tokio::time::{sleep, timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument;

use super::{
    ended::{BuildStats, EndedBuilds},
    log::{LogEnd, LogWriter},
    progress::Progress,
    queue::Queue,
    templates::{BuildHold, TemplateCatalog},
};
use crate::{BuildConfig, Error, Result, snapshots::SnapshotCatalog};

/// For a builder to clear away what it made, once it is told to stop.
const CANCEL_GRACE: Duration = Duration::from_mins(1);
const STOP_GRACE: Duration = Duration::from_secs(2);
const MAX_REASON_CHARS: usize = 4000;
pub(crate) const CANCELLED: &str = "build was cancelled";

#[derive(Debug)]
pub(crate) struct BuildScheduler {
    pub(crate) config: BuildConfig,
    store: Store,
    templates: Arc<TemplateCatalog>,
    snapshots: Arc<SnapshotCatalog>,
    queue: Arc<Queue>,
    running: Mutex<HashMap<String, Running>>,
    tasks: TaskTracker,
    ended: EndedBuilds,
    /// The server ends: what runs is interrupted, and goes on at the next start.
    stop: CancellationToken,
}

/// A build that was started and has not ended.
#[derive(Debug, Clone)]
pub(crate) struct Running {
    pub(crate) cancel: CancellationToken,
    /// Cancelled when its end is recorded.
    pub(crate) ended: CancellationToken,
    pub(crate) progress: Arc<Progress>,
}

/// Stages, once the templates that they start from are there, and what keeps those.
pub(crate) type Stages = BoxFuture<'static, Result<(Vec<Stage>, Vec<BuildHold>)>>;

/// Everything that a build needs.
pub(crate) struct Job {
    pub(crate) row: BuildRow,
    pub(crate) tenant: TenantId,
    pub(crate) name: String,
    pub(crate) stages: Stages,
    pub(crate) start: Option<String>,
    pub(crate) ready: Option<String>,
    pub(crate) force: bool,
    /// What its log must not show.
    pub(crate) secrets: Vec<String>,
    /// About how long the base, each step and the end take; empty where it is not known.
    pub(crate) seconds: Vec<u32>,
    /// It began before the server was restarted.
    pub(crate) resumed: bool,
}

enum Outcome {
    Ended(Result<(), BuildFailure>),
    /// The server stops: what becomes of it is not known yet.
    Interrupted,
}

impl BuildScheduler {
    /// Makes the folder of the logs when it is absent.
    pub(crate) async fn open(
        config: BuildConfig,
        store: &Store,
        templates: &Arc<TemplateCatalog>,
        snapshots: &Arc<SnapshotCatalog>,
        stop: CancellationToken,
    ) -> Result<Self> {
        let logs = config.logs.clone();
        let made = tokio::task::spawn_blocking(move || std::fs::create_dir_all(logs)).await;
        if !matches!(made, Ok(Ok(()))) {
            tracing::error!(path = %config.logs.display(), ?made, "no folder for the logs of builds");
            return Err(Error::Internal(
                "could not make the folder for the logs of builds",
            ));
        }
        Ok(Self {
            queue: Arc::new(Queue::new(config.parallel)),
            config,
            store: store.clone(),
            templates: Arc::clone(templates),
            snapshots: Arc::clone(snapshots),
            running: Mutex::default(),
            tasks: TaskTracker::new(),
            ended: EndedBuilds::default(),
            stop,
        })
    }

    pub(crate) fn stats(&self) -> BuildStats {
        let (running, waiting) = self.queue.counts();
        self.ended.stats(running, waiting)
    }

    pub(crate) fn log_file(&self, build: &str) -> PathBuf {
        self.config.logs.join(format!("{build}.jsonl"))
    }

    pub(crate) fn running(&self, build: &str) -> Option<Running> {
        self.running.lock().get(build).cloned()
    }

    /// Its row says `building` already.
    pub(crate) fn launch(self: &Arc<Self>, job: Job) {
        let id = job.row.id.clone();
        let (log, end) = LogWriter::open(self.log_file(&id), job.secrets.clone());
        let lines = Arc::clone(&log) as Arc<dyn BuildLog>;
        let running = Running {
            cancel: CancellationToken::new(),
            ended: CancellationToken::new(),
            progress: Arc::new(Progress::new(lines, job.seconds.clone())),
        };
        self.running.lock().insert(id.clone(), running.clone());
        let span = tracing::info_span!("build", template = %job.row.template, build = %id);
        let scheduler = Arc::clone(self);
        let work = async move {
            let (template, build) = (job.row.template.clone(), job.row.clone());
            match scheduler.run(job, &running).await {
                Outcome::Ended(ended) => scheduler.finish(&build, ended, &log, end).await,
                Outcome::Interrupted => {
                    let message = "the server stops: the build goes on when it is back";
                    log.line(LogLevel::Warn, None, message);
                    end.close().await;
                    tracing::info!(%template, "build interrupted");
                }
            }
            scheduler.running.lock().remove(&id);
            running.ended.cancel();
        };
        self.tasks.spawn(work.instrument(span));
    }

    /// Ends a build that is not launched.
    pub(crate) async fn fail(&self, build: &BuildRow, failure: BuildFailure) {
        let (log, end) = LogWriter::open(self.log_file(&build.id), Vec::new());
        log.line(LogLevel::Error, Some(&failure.step), &failure.message);
        self.finish(build, Err(failure), &log, end).await;
    }

    /// For the end of the server.
    pub(crate) async fn drain(&self, limit: Duration) {
        self.stop.cancel();
        self.tasks.close();
        if timeout(limit, self.tasks.wait()).await.is_err() {
            let left = self.tasks.len();
            tracing::warn!(left, "builds were still under way at the end");
        }
    }

    async fn run(&self, job: Job, running: &Running) -> Outcome {
        let (cancel, log) = (&running.cancel, &running.progress);
        let say = |message: &str| log.line(LogLevel::Info, None, message);
        if job.resumed {
            say("The server was restarted: the build runs again, from its last cached step");
        }
        let stages = tokio::select! {
            stages = job.stages => stages,
            () = cancel.cancelled() => return Outcome::Ended(Err(cancelled())),
            () = self.stop.cancelled() => return Outcome::Interrupted,
        };
        let (stages, _holds) = match stages {
            Ok(found) => found,
            // What it waited for was interrupted as well: both go on at the next start.
            Err(_) if self.stop.is_cancelled() => return Outcome::Interrupted,
            Err(error) => {
                let failure = BuildFailure::new("base", error.to_string());
                log.line(LogLevel::Error, Some(&failure.step), &failure.message);
                return Outcome::Ended(Err(failure));
            }
        };
        if self.queue.is_full() {
            say("Waiting for other builds to end");
        }
        let _place = tokio::select! {
            place = self.queue.enter(&job.tenant) => place,
            () = cancel.cancelled() => return Outcome::Ended(Err(cancelled())),
            () = self.stop.cancelled() => return Outcome::Interrupted,
        };
        let request = BuildRequest {
            build: job.row.id,
            template: job.row.template,
            tenant: job.tenant,
            aliases: vec![job.name],
            limits: job.row.limits,
            stages,
            start: job.start,
            ready: job.ready,
            force: job.force,
        };
        self.build(request, running).await
    }

    async fn build(&self, request: BuildRequest, running: &Running) -> Outcome {
        let cancel = &running.cancel;
        // A builder that was told to stop by us must not be taken for one that its user stopped.
        let described = cancel.child_token();
        let lines = Arc::clone(&running.progress) as Arc<dyn BuildLog>;
        let build = self.config.builder.build(request, lines, described.clone());
        let mut build = pin!(AssertUnwindSafe(build).catch_unwind());
        let (grace, otherwise) = tokio::select! {
            biased;
            ended = &mut build => return Outcome::Ended(settled(ended.map(|ended| ended.map(drop)))),
            () = self.stop.cancelled() => (STOP_GRACE, None),
            () = cancel.cancelled() => (CANCEL_GRACE, Some(cancelled())),
            () = sleep(self.config.max_duration) => (CANCEL_GRACE, Some(timed_out())),
        };
        described.cancel();
        let ended = timeout(grace, &mut build).await;
        match (ended, otherwise) {
            // It was done at this very moment.
            (Ok(Ok(Ok(_))), _) => Outcome::Ended(Ok(())),
            (_, Some(failure)) => Outcome::Ended(Err(failure)),
            (_, None) => Outcome::Interrupted,
        }
    }

    /// The log is whole before the end can be seen: clients read it until nothing more comes.
    async fn finish(
        &self,
        build: &BuildRow,
        ended: Result<(), BuildFailure>,
        log: &LogWriter,
        end: LogEnd,
    ) {
        let reason = ended.err().map(|failure| BuildReason {
            step: failure.step,
            message: log
                .clean(&failure.message)
                .chars()
                .filter(|&c| c != '\0')
                .take(MAX_REASON_CHARS)
                .collect(),
        });
        end.close().await;
        match &reason {
            None => tracing::info!("template built"),
            Some(reason) => tracing::info!(step = reason.step, reason.message, "build failed"),
        }
        self.record(build, reason).await;
    }

    /// Writes the end of a build, and lets its tags mean it, unless they were moved since it was
    /// asked for.
    pub(crate) async fn record(&self, build: &BuildRow, reason: Option<BuildReason>) {
        let _writing = self.snapshots.writing.lock().await;
        let at = UnixMillis::now();
        let current = self.templates.by_id(build.template.as_str());
        let tags: Vec<_> = match (&reason, current) {
            (None, Some(built)) => {
                let moved = |tag: &&String| {
                    let now = built.tags.get(*tag);
                    now.is_none_or(|row| row.assigned_at <= build.created_at)
                };
                let own = build.tags.iter().filter(moved);
                own.map(|tag| TemplateTagRow {
                    template: build.template.clone(),
                    tag: tag.clone(),
                    build: build.id.clone(),
                    assigned_at: build.created_at,
                })
                .collect()
            }
            _ => Vec::new(),
        };
        let written = self
            .store
            .finish_build(&build.id, reason.as_ref(), &tags, at)
            .await;
        if let Err(error) = written {
            // The next start runs it again, out of its cache.
            tracing::error!(build = build.id, error = %Chain(&error), "could not record the end of a build");
        }
        self.ended.count(build, reason.as_ref(), at);
        self.templates.change(&build.template, &build.id, |row| {
            row.status = reason
                .as_ref()
                .map_or(BuildStatus::Ready, |_| BuildStatus::Error);
            row.reason = reason;
            row.finished_at = Some(at);
        });
        self.templates.tag(tags);
    }
}

fn settled(
    ended: Result<Result<(), BuildFailure>, Box<dyn std::any::Any + Send>>,
) -> Result<(), BuildFailure> {
    ended.unwrap_or_else(|_| {
        tracing::error!("a build panicked");
        let message = "the build failed inside the server: its log says why; try again";
        Err(BuildFailure::new("finalize", message))
    })
}

pub(crate) fn cancelled() -> BuildFailure {
    BuildFailure::new("base", CANCELLED)
}

fn timed_out() -> BuildFailure {
    BuildFailure::new("finalize", "build timed out")
}
