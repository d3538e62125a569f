//! Images: from a registry, or from an archive.

use std::{
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use soulbox_image::{Error as ImageError, Image, Progress};

use crate::{
    Credentials,
    job::{Job, StageState},
    key::Key,
    problem::{Problem, Result},
    state::State,
    step_log::StepLog,
};

pub(super) async fn pull(
    job: &Job,
    reference: &str,
    credentials: Option<&Credentials>,
    refresh: bool,
    step_log: &StepLog,
) -> Result<Image> {
    let progress = LogProgress::new(step_log);
    let pulled = job
        .context
        .images
        .pull(reference, credentials, refresh, &progress)
        .await;
    pulled.map_err(|error| image_problem(&format!("pull image '{reference}'"), error))
}

/// For `COPY --from=image`: nobody runs in it, so it needs nothing.
pub(crate) async fn unmodified(
    job: &Job,
    reference: &str,
    step_log: &StepLog,
) -> Result<StageState> {
    let image = pull(job, reference, None, false, step_log).await?;
    Ok(image_state(job, &image))
}

/// An image before anything was done to it.
pub(super) fn image_state(job: &Job, image: &Image) -> StageState {
    let key = Key::base(&job.request.tenant, &["image", &image.digest]);
    let state = State {
        env: image.env.iter().cloned().collect(),
        user: "root".to_owned(),
        workdir: None,
    };
    StageState::of_layers(key, &image.layers, state, &job.context.leases)
}

pub(super) async fn import_upload(job: &Job, hash: &str, step_log: &StepLog) -> Result<Image> {
    let path = job.context.files.path(&job.request.tenant, hash);
    let path = path.ok_or_else(|| Problem::user(format!("{hash:?} is no hash of files")))?;
    let _held = job.context.leases.hold([path.clone()]);
    if !job.context.files.has(&job.request.tenant, hash).await {
        return Err(Problem::user(
            "the archive to start from was not uploaded: build again",
        ));
    }
    import(job, &path, step_log).await
}

pub(super) async fn import(job: &Job, archive: &Path, step_log: &StepLog) -> Result<Image> {
    let progress = LogProgress::new(step_log);
    let imported = job.context.images.import_tar(archive, &progress).await;
    imported.map_err(|error| image_problem("unpack the archive", error))
}

fn image_problem(doing: &str, error: ImageError) -> Problem {
    match error {
        ImageError::Io { .. } | ImageError::Roots(_) | ImageError::GivenUp => {
            Problem::internal("unpack the image", error)
        }
        other => Problem::user(format!("failed to {doing}: {other}")),
    }
}

/// Progress as lines of a log: now and then, not four times a second.
struct LogProgress<'a> {
    step_log: &'a StepLog,
    /// Tenths of the whole.
    last: AtomicU64,
}

impl<'a> LogProgress<'a> {
    fn new(step_log: &'a StepLog) -> Self {
        Self {
            step_log,
            last: AtomicU64::new(0),
        }
    }
}

impl Progress for LogProgress<'_> {
    fn line(&self, text: &str) {
        self.step_log.info(text);
    }

    fn bytes(&self, done: u64, total: u64) {
        const MEGABYTE: u64 = 1_000_000;
        let tenths = (done.saturating_mul(10)).checked_div(total).unwrap_or(0);
        if self.last.swap(tenths, Ordering::Relaxed) != tenths && total >= MEGABYTE {
            self.step_log.info(&format!(
                "{} of {} MB",
                done.div_ceil(MEGABYTE),
                total.div_ceil(MEGABYTE)
            ));
        }
    }
}
