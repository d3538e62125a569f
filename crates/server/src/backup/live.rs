//! A backup of a server that runs.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result};
use parking_lot::Mutex;
use soulbox_backup::LeftOut;
use soulbox_build::{Builder, HeldFolders};
use soulbox_control::volume::{self, Volumes};
use soulbox_node::{CopiedState, LocalNode};
use soulbox_runtime::{Node, Remedy};
use soulbox_store::Store;
use soulbox_types::SandboxSpec;
use tokio::runtime::Handle;

use super::take::Source;

/// The parts of a server that a backup needs.
#[derive(Debug, Clone)]
pub(crate) struct LiveSource {
    pub(crate) data_dir: PathBuf,
    pub(crate) node: Arc<LocalNode>,
    pub(crate) store: Store,
    pub(crate) volumes: Arc<Volumes>,
    pub(crate) builder: Arc<Builder>,
}

/// One backup of it.
pub(super) struct LiveBackup {
    pub(super) source: LiveSource,
    held: Mutex<Vec<HeldFolders>>,
    runtime: Handle,
}

impl LiveBackup {
    pub(super) fn new(source: LiveSource, runtime: Handle) -> Self {
        Self {
            source,
            held: Mutex::default(),
            runtime,
        }
    }
}

impl Source for LiveBackup {
    fn data_dir(&self) -> &Path {
        &self.source.data_dir
    }

    fn hold(&self, folders: Vec<PathBuf>) {
        let held = self.source.builder.hold(folders);
        self.held.lock().push(held);
    }

    fn copy_database(&self, to: &Path) -> Result<()> {
        self.runtime
            .block_on(self.source.store.copy_to(to))
            .context("could not copy the database")
    }

    fn sandboxes(&self) -> Result<Vec<Arc<SandboxSpec>>> {
        Ok(self.source.node.to_back_up())
    }

    fn copy_sandbox(&self, spec: &SandboxSpec, to: &Path) -> Result<Option<CopiedState>> {
        let copied = self
            .runtime
            .block_on(self.source.node.back_up(&spec.id, to));
        match copied {
            Ok(state) => Ok(Some(state)),
            Err(soulbox_runtime::Error::SandboxNotFound(_)) => Ok(None),
            // What fails under the hands of a kill has ended too.
            Err(_) if self.source.node.get(&spec.id).is_none() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn copy_volume(&self, id: &str, to: &Path) -> Result<bool> {
        match self.source.volumes.capture(id, to) {
            Ok(()) => Ok(true),
            Err(volume::Error::NoVolume(_)) => Ok(false),
            Err(_) if !self.source.volumes.exists(id) => Ok(false),
            Err(error) => Err(error).with_context(|| format!("could not copy the volume {id}")),
        }
    }

    fn left_out(&self) -> Vec<LeftOut> {
        let broken = self.source.node.broken();
        let left_alone = broken.iter().filter(|each| each.remedy == Remedy::Retry);
        left_alone
            .map(|each| LeftOut {
                what: format!("sandbox {}", each.id),
                why: format!("it is broken and may run: {}", each.reason),
            })
            .collect()
    }
}
