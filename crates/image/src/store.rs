//! The store: layers by content, and a cache of resolved references.
//!
//! ```text
//! layers/<diff id>/         one unpacked layer; a name means that it is whole
//! sources/<diff id>/        where the layer was proven to come from; the time is its last use
//! manifests/<key>.json      what a reference meant to somebody
//! key                       keyed hash: file names of manifests reveal nothing about credentials
//! tmp/                      work under way; emptied at start
//! ```

mod collect;
mod implied;
mod install;
mod locks;
mod pins;
mod reference_cache;
mod sources;

use std::{
    fs::DirBuilder,
    io,
    os::{
        fd::AsFd,
        unix::fs::{DirBuilderExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::sync::Semaphore;

pub(crate) use self::{
    install::{CancelOnDrop, Input},
    reference_cache::ResolvedReference,
};
use self::{locks::Locks, pins::Pins, reference_cache::ReferenceCache};
use crate::{
    Image, ImageConfig, Result,
    digest::Digest,
    error::At,
    layer::{self, Bounds},
    registry::Registries,
};

/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct ImageStore {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    dir: PathBuf,
    pub(crate) config: ImageConfig,
    pub(crate) registries: Registries,
    pub(crate) references: ReferenceCache,
    /// One download or unpacking per layer.
    pub(crate) locks: Locks,
    /// Layers that a pull under way counts on: not garbage, whatever their age.
    pub(crate) pins: Pins,
    /// Layers that are worked on at a time.
    pub(crate) workers: Semaphore,
}

impl ImageStore {
    /// Makes the folder if need be and removes what an earlier process left unfinished.
    pub fn open(dir: PathBuf, config: ImageConfig) -> Result<Self> {
        let registries = Registries::new(&config)?;
        make_folder(&dir)?;
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700)).at("close", &dir)?;
        let temporary = dir.join("tmp");
        empty(&temporary).at("empty", &temporary)?;
        for name in ["tmp", "layers", "sources", "manifests"] {
            make_folder(&dir.join(name))?;
        }
        let references = ReferenceCache::open(&dir)?;
        let workers = Semaphore::new(config.parallel.max(1));
        let inner = Inner {
            dir,
            config,
            registries,
            references,
            locks: Locks::default(),
            pins: Pins::default(),
            workers,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Every layer that is here.
    pub fn layers(&self) -> Vec<PathBuf> {
        self.inner
            .layer_digests()
            .iter()
            .map(|digest| self.inner.layer(digest))
            .collect()
    }
}

/// The folder itself stays: on a full disk another might take its block before it is made again.
fn empty(folder: &Path) -> io::Result<()> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        } else {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

impl Inner {
    pub(crate) fn layer(&self, digest: &Digest) -> PathBuf {
        self.dir.join("layers").join(digest.hex())
    }

    pub(crate) fn temporary(&self) -> PathBuf {
        self.dir.join("tmp")
    }

    fn layer_digests(&self) -> Vec<Digest> {
        let Ok(entries) = std::fs::read_dir(self.dir.join("layers")) else {
            return Vec::new();
        };
        let mut found: Vec<Digest> = entries
            .filter_map(|entry| Digest::from_hex(entry.ok()?.file_name().to_str()?))
            .collect();
        found.sort();
        found
    }

    pub(crate) fn bounds(&self) -> Bounds {
        Bounds::new(self.config.max_layer_bytes, self.config.min_free_disk)
    }

    /// Bytes that may still be written.
    pub(crate) fn room(&self) -> Result<u64> {
        let disk = rustix::fs::statvfs(&self.dir).at("look at the disk of", &self.dir)?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        Ok(free.saturating_sub(self.config.min_free_disk))
    }

    /// The image that these layers make, if all are here, which counts as a use of them.
    pub(crate) fn assemble(&self, found: &ResolvedReference) -> Result<Option<Image>> {
        let here = |digest: &Digest| self.layer(digest).is_dir();
        if !found.layers.iter().all(here) {
            return Ok(None);
        }
        for digest in &found.layers {
            self.touch(digest)?;
        }
        let mut layers = stack(found.layers.iter().map(|digest| self.layer(digest)));
        layers.extend(self.correction(&layers)?);
        let settings = found.settings.clone();
        Ok(Some(settings.into_image(found.digest.clone(), layers)))
    }
}

/// What overlayfs needs to see of a list of layers, lowest first.
fn stack(layers: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut stack: Vec<PathBuf> = Vec::new();
    for layer in layers {
        // It takes no directory twice. What the lower one gave or took away, the upper one gives
        // or takes away again.
        stack.retain(|other| *other != layer);
        // It does not look for the mark on the root.
        let root = std::fs::File::open(&layer);
        if root.is_ok_and(|root| layer::is_opaque(root.as_fd())) {
            stack.clear();
        }
        stack.push(layer);
    }
    stack
}

fn make_folder(path: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .at("make", path)
}
