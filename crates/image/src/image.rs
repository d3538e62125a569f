//! An image, ready to be started from.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// `sha256:…`: the same for the same content on this kind of machine.
    pub digest: String,
    /// Lowest first; whiteouts and opaque directories as overlayfs has them.
    pub layers: Vec<PathBuf>,
    pub env: Vec<(String, String)>,
    pub user: String,
    pub workdir: String,
    pub entrypoint: Vec<String>,
    pub cmd: Vec<String>,
    /// As images write them: `80/tcp`.
    pub exposed_ports: Vec<String>,
}

/// How the image wants to be run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) env: Vec<(String, String)>,
    pub(crate) user: String,
    pub(crate) workdir: String,
    pub(crate) entrypoint: Vec<String>,
    pub(crate) cmd: Vec<String>,
    pub(crate) exposed_ports: Vec<String>,
}

impl Settings {
    pub(crate) fn into_image(self, digest: String, layers: Vec<PathBuf>) -> Image {
        Image {
            digest,
            layers,
            env: self.env,
            user: self.user,
            workdir: self.workdir,
            entrypoint: self.entrypoint,
            cmd: self.cmd,
            exposed_ports: self.exposed_ports,
        }
    }
}
