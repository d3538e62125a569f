//! Garbage collection of steps, uploads and image layers.

use std::{collections::HashSet, io, path::PathBuf, sync::Arc};

use soulbox_template::Template;
use soulbox_types::Chain;

use crate::{base::debian, durable::blocking, job::BuildContext};

/// `keep`: the builds that sandboxes and snapshots use.
pub(crate) async fn collect(context: &Arc<BuildContext>, keep: &[Arc<Template>]) {
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
        shared.steps.collect(&used, config.step_age)?;
        let lasting = config.lasting_files_of.as_ref();
        shared.files.collect(config.files_age, lasting, &held)?;
        debian::collect(&config.templates_dir, config.image_age)?;
        // Step directories are not the store's, and it knows its own.
        shared
            .images
            .collect(&used, config.image_age)
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
