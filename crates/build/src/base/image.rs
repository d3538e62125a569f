//! Images: from a registry, or from an archive.

use std::{
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use soulbox_image::{Error as ImageError, Image, Progress};

use crate::{
    Credentials,
    job::{Ground, Job},
    journal::Journal,
    key::Key,
    problem::{Problem, Result},
    state::State,
};

pub(super) async fn pull(
    job: &Job,
    reference: &str,
    credentials: Option<&Credentials>,
    refresh: bool,
    journal: &Journal,
) -> Result<Image> {
    let credentials = credentials.map(translated);
    let progress = Told::new(journal);
    let pulled = job
        .shop
        .images
        .pull(reference, credentials.as_ref(), refresh, &progress)
        .await;
    pulled.map_err(|error| told(&format!("pull image '{reference}'"), error))
}

/// For `COPY --from=image`: nobody runs in it, so it needs nothing.
pub(crate) async fn as_it_is(job: &Job, reference: &str, journal: &Journal) -> Result<Ground> {
    let image = pull(job, reference, None, false, journal).await?;
    Ok(ground(job, &image))
}

/// An image before anything was done to it.
pub(super) fn ground(job: &Job, image: &Image) -> Ground {
    let key = Key::base(&job.request.tenant, &["image", &image.digest]);
    let state = State {
        env: image.env.iter().cloned().collect(),
        user: "root".to_owned(),
        workdir: None,
    };
    Ground::of_layers(key, &image.layers, state, &job.shop.leases)
}

pub(super) async fn import_upload(job: &Job, hash: &str, journal: &Journal) -> Result<Image> {
    let path = job.shop.files.path(&job.request.tenant, hash);
    let path = path.ok_or_else(|| Problem::told(format!("{hash:?} is no hash of files")))?;
    let _held = job.shop.leases.hold([path.clone()]);
    if !job.shop.files.has(&job.request.tenant, hash).await {
        return Err(Problem::told(
            "the archive to start from was not uploaded: build again",
        ));
    }
    import(job, &path, journal).await
}

pub(super) async fn import(job: &Job, archive: &Path, journal: &Journal) -> Result<Image> {
    let progress = Told::new(journal);
    let imported = job.shop.images.import_tar(archive, &progress).await;
    imported.map_err(|error| told("unpack the archive", error))
}

fn told(doing: &str, error: ImageError) -> Problem {
    match error {
        ImageError::Io { .. } | ImageError::Roots(_) | ImageError::GivenUp => {
            Problem::internal("unpack the image", error)
        }
        other => Problem::told(format!("failed to {doing}: {other}")),
    }
}

fn translated(credentials: &Credentials) -> soulbox_image::Credentials {
    match credentials.clone() {
        Credentials::Basic { username, password } => {
            soulbox_image::Credentials::Basic { username, password }
        }
        Credentials::Aws {
            access_key_id,
            secret_access_key,
            region,
        } => soulbox_image::Credentials::Aws {
            access_key_id,
            secret_access_key,
            region,
        },
        Credentials::Gcp {
            service_account_json,
        } => soulbox_image::Credentials::Gcp {
            service_account_json,
        },
    }
}

/// Progress as lines of a log: now and then, not four times a second.
struct Told<'a> {
    journal: &'a Journal,
    /// Tenths of the whole.
    last: AtomicU64,
}

impl<'a> Told<'a> {
    fn new(journal: &'a Journal) -> Self {
        Self {
            journal,
            last: AtomicU64::new(0),
        }
    }
}

impl Progress for Told<'_> {
    fn line(&self, text: &str) {
        self.journal.info(text);
    }

    fn bytes(&self, done: u64, total: u64) {
        const MEGABYTE: u64 = 1_000_000;
        let tenths = (done.saturating_mul(10)).checked_div(total).unwrap_or(0);
        if self.last.swap(tenths, Ordering::Relaxed) != tenths && total >= MEGABYTE {
            self.journal.info(&format!(
                "{} of {} MB",
                done.div_ceil(MEGABYTE),
                total.div_ceil(MEGABYTE)
            ));
        }
    }
}
