use std::{collections::HashSet, io, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use soulbox_image::ImageStore;
use soulbox_runtime::{BuildNode, LogLevel};
use soulbox_template::{Template, Templates};
use soulbox_types::TenantId;
use tokio_util::sync::CancellationToken;

use crate::{
    BuildFailure, BuildLog, BuildRequest, BuilderConfig, Builds, FilesError, Upload,
    base::debian,
    disk_use::{self, BuildDisk, Sizes},
    durable,
    files::Files,
    garbage::{self, Ages},
    job::{BuildContext, Job},
    lease::{Lease, Leases},
    pipeline,
    step_cache::StepCache,
};

/// How long the end of a build waits for its sandboxes to be gone.
const CLOSING_LIMIT: Duration = Duration::from_mins(1);

/// Builds templates on this machine's node.
#[derive(Debug)]
pub struct Builder {
    context: Arc<BuildContext>,
}

impl Builder {
    /// Blocking. What an earlier run left unfinished goes.
    pub fn open(
        config: BuilderConfig,
        node: Arc<dyn BuildNode>,
        templates: Arc<Templates>,
        images: Arc<ImageStore>,
    ) -> io::Result<Self> {
        let leases = Leases::default();
        let steps = StepCache::open(config.templates_dir.join("steps"), leases.clone())?;
        let files = Files::open(
            config.templates_dir.join("files"),
            config.upload_limit,
            config.min_free_disk,
        )?
        .trusting(config.lasting_files_of.clone());
        let debian = config.templates_dir.join(debian::FOLDER);
        if debian.is_dir() {
            durable::remove_unfinished(&debian)?;
        }
        Ok(Self {
            context: Arc::new(BuildContext {
                config,
                node,
                templates,
                images,
                steps,
                files,
                leases,
                sizes: Sizes::default(),
            }),
        })
    }

    /// Garbage collection leaves these folders alone while the result lives.
    pub fn hold(&self, folders: impl IntoIterator<Item = PathBuf>) -> HeldFolders {
        HeldFolders {
            _lease: self.context.leases.hold(folders),
        }
    }
}

/// See [`Builder::hold`].
#[derive(Debug)]
#[must_use = "they are held while this lives"]
pub struct HeldFolders {
    _lease: Arc<Lease>,
}

#[async_trait]
impl Builds for Builder {
    async fn build(
        &self,
        request: BuildRequest,
        log: Arc<dyn BuildLog>,
        cancel: CancellationToken,
    ) -> Result<Arc<Template>, BuildFailure> {
        let job = Job::new(Arc::clone(&self.context), request, log);
        let built = {
            let run = pipeline::run(&job);
            tokio::select! {
                biased;
                () = cancel.cancelled() => Err(BuildFailure::new(job.reached(), "build was cancelled")),
                built = run => built,
            }
        };
        job.closing.close();
        if tokio::time::timeout(CLOSING_LIMIT, job.closing.wait())
            .await
            .is_err()
        {
            tracing::warn!(build = %job.request.build, "sandboxes of a build are still being ended");
        }
        // Who cancelled says so, and why.
        if let Err(failure) = &built
            && !cancel.is_cancelled()
        {
            job.log
                .line(LogLevel::Error, Some(&failure.step), &failure.message);
        }
        built
    }

    async fn has_files(&self, tenant: &TenantId, hash: &str) -> bool {
        self.context.files.has(tenant, hash).await
    }

    async fn receive_files(
        &self,
        tenant: &TenantId,
        hash: &str,
        upload: Upload,
    ) -> Result<(), FilesError> {
        self.context.files.receive(tenant, hash, upload).await
    }

    async fn collect_garbage(&self, keep: Vec<Arc<Template>>) {
        let ages = Ages::of(&self.context.config);
        garbage::collect(&self.context, &keep, ages).await;
    }

    async fn prune(&self, keep: Vec<Arc<Template>>) {
        garbage::collect(&self.context, &keep, Ages::NOW).await;
    }

    async fn disk_use(
        &self,
        without: HashSet<String>,
        keep: Vec<Arc<Template>>,
    ) -> io::Result<BuildDisk> {
        disk_use::measure(&self.context, &without, &keep).await
    }
}
