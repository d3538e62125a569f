use std::{path::PathBuf, time::Duration};

use soulbox_types::TenantId;

/// Where a builder works, and how far it goes.
#[derive(Debug, Clone)]
pub struct BuilderConfig {
    /// `DIR/templates`.
    pub templates_dir: PathBuf,
    /// Our static set-uid helper, for images without a `sudo` of their own.
    pub sudo: PathBuf,
    /// PEM file with authorities that sandboxes shall trust besides the image's. `None` where the
    /// host has no more than any distribution ships.
    pub ca_bundle: Option<PathBuf>,
    /// How long one step may take.
    pub step_limit: Duration,
    /// How large an upload may be.
    pub upload_limit: u64,
    /// So many bytes of the data folder's disk stay free, whatever is uploaded.
    pub min_free_disk: u64,
    /// How long a cached step stays that nothing uses.
    pub step_age: Duration,
    /// How long an upload stays that nothing uses.
    pub files_age: Duration,
    /// Whose uploads stay however old they are: they come with the server.
    pub lasting_files_of: Option<TenantId>,
    /// How long an image stays that nothing uses.
    pub image_age: Duration,
    /// How many directories may lie above each other at a mount point.
    pub most_layers: usize,
}

impl BuilderConfig {
    pub fn new(templates_dir: PathBuf, sudo: PathBuf) -> Self {
        Self {
            templates_dir,
            sudo,
            ca_bundle: None,
            step_limit: Duration::from_hours(1),
            upload_limit: 4 << 30,
            min_free_disk: 1 << 30,
            step_age: Duration::from_hours(24 * 30),
            files_age: Duration::from_hours(24 * 7),
            lasting_files_of: None,
            image_age: Duration::from_hours(24 * 7),
            most_layers: 100,
        }
    }
}
