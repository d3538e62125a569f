//! A backup of the folder of a server that does not run. It is locked meanwhile: none can start.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result, bail};
use soulbox_backup::LeftOut;
use soulbox_control::volume::Volumes;
use soulbox_node::{CopiedState, StoppedSandbox, stopped_sandboxes};
use soulbox_store::Store;
use soulbox_types::SandboxSpec;
use tokio::runtime::Handle;

use super::take::Source;
use crate::{data_dir, keys::DATABASE};

pub(super) struct StoppedSource {
    path: PathBuf,
    store: Store,
    volumes: Arc<Volumes>,
    sandboxes: HashMap<String, StoppedSandbox>,
    broken: Vec<LeftOut>,
    runtime: Handle,
    _lock: fs_err::File,
}

impl StoppedSource {
    /// Refused while sandboxes run: nobody here can hold them still.
    pub(super) fn open(path: &Path, runtime: Handle) -> Result<Self> {
        if !path.join(DATABASE).is_file() {
            bail!(
                "{} holds no database of a soulbox server: correct --data-dir",
                path.display()
            );
        }
        let lock = data_dir::lock_of_stopped(path)?;
        let (whole, broken) = stopped_sandboxes(&path.join("sandboxes"))?;
        let mut running = Vec::new();
        for sandbox in &whole {
            if sandbox.state == CopiedState::Running
                && let Some(record) = &sandbox.running
                && soulbox_jail::has_processes(record)?
            {
                running.push(sandbox.spec.id.to_string());
            }
        }
        if let Some(first) = running.first() {
            bail!(
                "{} sandboxes run although no server does, {first} among them: start `soulbox \
                 serve` and take the backup through it (or pause or kill them first)",
                running.len()
            );
        }
        let store = runtime
            .block_on(Store::open(&path.join(DATABASE)))
            .context("could not open the database")?;
        let volumes = Volumes::open(path.join("volumes")).context("could not open the volumes")?;
        let sandboxes = whole.into_iter();
        Ok(Self {
            path: path.to_owned(),
            store,
            volumes,
            sandboxes: sandboxes
                .map(|sandbox| (sandbox.spec.id.to_string(), sandbox))
                .collect(),
            broken: broken
                .into_iter()
                .map(|id| LeftOut {
                    what: format!("sandbox {id}"),
                    why: "its folder is damaged: the next start of a server puts it aside".into(),
                })
                .collect(),
            runtime,
            _lock: lock,
        })
    }
}

impl Drop for StoppedSource {
    fn drop(&mut self) {
        self.volumes.close();
        self.runtime.block_on(self.store.close());
    }
}

impl Source for StoppedSource {
    fn data_dir(&self) -> &Path {
        &self.path
    }

    fn hold(&self, _folders: Vec<PathBuf>) {
        // Nobody else is here: the folder is locked.
    }

    fn copy_database(&self, to: &Path) -> Result<()> {
        self.runtime
            .block_on(self.store.copy_to(to))
            .context("could not copy the database")
    }

    fn sandboxes(&self) -> Result<Vec<Arc<SandboxSpec>>> {
        let specs = self.sandboxes.values().map(|sandbox| &sandbox.spec);
        Ok(specs.cloned().map(Arc::new).collect())
    }

    fn copy_sandbox(&self, spec: &SandboxSpec, to: &Path) -> Result<Option<CopiedState>> {
        let Some(sandbox) = self.sandboxes.get(spec.id.as_str()) else {
            return Ok(None);
        };
        sandbox.back_up(to)?;
        Ok(Some(sandbox.state))
    }

    fn copy_volume(&self, id: &str, to: &Path) -> Result<bool> {
        self.volumes
            .capture(id, to)
            .with_context(|| format!("could not copy the volume {id}"))?;
        Ok(true)
    }

    fn left_out(&self) -> Vec<LeftOut> {
        self.broken.clone()
    }
}
