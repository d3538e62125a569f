//! Where a layer was proven to come from.
//!
//! Layers are shared by content, and the digest of the content is in the image's configuration,
//! which anybody can write: a tenant who knows the digest of another one's private layer could
//! name it in an image of their own and be given what is already here. So a layer that is here is
//! only used for a registry that has sent it once. There the blob's digest, which the registry
//! itself checked against what it lets people see, stands for the right to it.

use std::{fs::FileTimes, path::PathBuf, time::SystemTime};

use super::{Inner, make_folder};
use crate::{Result, digest::Digest, error::At};

impl Inner {
    pub(super) fn sources(&self, layer: &Digest) -> PathBuf {
        self.dir.join("sources").join(layer.hex())
    }

    fn source(&self, layer: &Digest, registry: &str, blob: &Digest) -> PathBuf {
        let name = Digest::of(format!("{registry}\n{blob}").as_bytes());
        self.sources(layer).join(name.hex())
    }

    pub(crate) fn is_proven(&self, layer: &Digest, registry: &str, blob: &Digest) -> bool {
        self.layer(layer).is_dir() && self.source(layer, registry, blob).exists()
    }

    pub(crate) fn prove(&self, layer: &Digest, registry: &str, blob: &Digest) -> Result<()> {
        make_folder(&self.sources(layer))?;
        let path = self.source(layer, registry, blob);
        std::fs::write(&path, b"").at("write", &path)
    }

    /// Notes that the layer was used now.
    pub(crate) fn touch(&self, layer: &Digest) -> Result<()> {
        let folder = self.sources(layer);
        make_folder(&folder)?;
        let now = FileTimes::new().set_modified(SystemTime::now());
        std::fs::File::open(&folder)
            .and_then(|file| file.set_times(now))
            .at("note the use of", &folder)
    }
}
