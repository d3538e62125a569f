//! Garbage collection of steps, uploads and image layers.

use std::{collections::HashSet, io, path::PathBuf, sync::Arc, time::Duration};

use soulbox_template::Template;
use soulbox_types::Chain;

use crate::{BuilderConfig, base::debian, durable::blocking, job::BuildContext};

/// A client uploads its files just before it starts a build.
pub(crate) const UPLOAD_GRACE: Duration = Duration::from_hours(1);

/// For how long what nothing uses stays.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ages {
    steps: Duration,
    files: Duration,
    images: Duration,
}

impl Ages {
    /// Somebody wants the room.
    pub(crate) const NOW: Self = Self {
        steps: Duration::ZERO,
        files: UPLOAD_GRACE,
        images: Duration::ZERO,
    };

    pub(crate) fn of(config: &BuilderConfig) -> Self {
        Self {
            steps: config.step_age,
            files: config.files_age,
            images: config.image_age,
        }
    }
}

/// `keep`: the builds that sandboxes and snapshots use.
pub(crate) async fn collect(context: &Arc<BuildContext>, keep: &[Arc<Template>], ages: Ages) {
    // Leases first: a build that ends in between has its template in the list by then.
    let held = context.leases.held();
    let mut used: HashSet<PathBuf> = held.clone();
    for template in context.templates.all().iter().chain(keep) {
        used.extend(
            template
                .overlays
                .iter()
                .flat_map(|o| o.lower.iter().cloned()),
        );
    }
    let shared = Arc::clone(context);
    let collected = blocking(move || {
        let config = &shared.config;
        shared.steps.collect(&used, ages.steps)?;
        let lasting = config.lasting_files_of.as_ref();
        shared.files.collect(ages.files, lasting, &held)?;
        debian::collect(&config.templates_dir, ages.images)?;
        // Step directories are not the store's, and it knows its own.
        shared
            .images
            .collect(&used, ages.images)
            .map_err(io::Error::other)
    });
    match collected.await {
        Ok(removed) if removed.is_empty() => {}
        Ok(removed) => tracing::info!(layers = removed.len(), "removed image layers"),
        Err(error) => {
            tracing::warn!(error = %Chain(&error), "could not remove everything that nothing uses");
        }
    }
}
