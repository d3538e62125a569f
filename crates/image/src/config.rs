//! What the operator decides about images.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

#[derive(Debug, Clone)]
pub struct ImageConfig {
    /// By registry (`docker.io`): the base URL of a mirror, which is asked first, without the
    /// user's credentials, and may be anywhere.
    pub mirrors: BTreeMap<String, String>,
    /// `host[:port]` of registries that may be at private addresses and may speak plain http;
    /// without a port, only the usual ones (443 and 80). `https://` or `http://` before it says
    /// which; otherwise it is found out.
    pub allow: Vec<String>,
    /// Of one layer, unpacked.
    pub max_layer_bytes: u64,
    /// Bytes that stay free on the disk.
    pub min_free_disk: u64,
    /// Layers that are downloaded or unpacked at a time, over all pulls.
    pub parallel: usize,
    /// A PEM file with certificate authorities besides the system's.
    pub extra_ca: Option<PathBuf>,
    pub timeouts: Timeouts,
}

impl Default for ImageConfig {
    fn default() -> Self {
        Self {
            mirrors: BTreeMap::new(),
            allow: Vec::new(),
            max_layer_bytes: 20 << 30,
            min_free_disk: 1 << 30,
            parallel: 3,
            extra_ca: None,
            timeouts: Timeouts::default(),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// For a name, for a connection, and for its encryption, each.
    pub connect: Duration,
    /// Without any byte from the registry.
    pub idle: Duration,
    /// For a whole pull.
    pub total: Duration,
    /// Before the second try; doubled from try to try.
    pub retry: Duration,
    /// The longest wait that a registry can ask for with `Retry-After`.
    pub longest_wait: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            idle: Duration::from_mins(1),
            total: Duration::from_hours(2),
            retry: Duration::from_millis(500),
            longest_wait: Duration::from_secs(30),
        }
    }
}
