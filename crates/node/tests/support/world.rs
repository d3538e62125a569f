//! What servers keep on a machine from one run to the next.

#![allow(dead_code, reason = "each test uses its part")]

use std::{path::PathBuf, sync::Arc};

use soulbox_node::LocalNode;
use soulbox_runtime::{Broken, Node};
use soulbox_types::{PauseMode, SandboxId, SandboxSpec};

use crate::machine::{self, LONG, Machine, config, quarantine_dir, spec};

/// A machine, and what servers on it keep.
pub(crate) struct World {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) machine: Arc<Machine>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            machine: Arc::default(),
        }
    }

    pub(crate) fn sandboxes(&self) -> PathBuf {
        self.folder.path().join("sandboxes")
    }

    pub(crate) fn place(&self, id: &SandboxId) -> PathBuf {
        self.sandboxes().join(id.as_str())
    }

    pub(crate) fn quarantined(&self, id: &SandboxId) -> PathBuf {
        quarantine_dir(&self.sandboxes()).join(id.as_str())
    }

    pub(crate) async fn server(&self) -> Arc<LocalNode> {
        machine::open(config(&self.sandboxes()), &self.machine).await
    }

    /// A sandbox that a former server left.
    pub(crate) async fn left(&self, kept: Option<PauseMode>) -> SandboxSpec {
        let (server, request) = (self.server().await, spec(LONG));
        server.create(request.clone()).await.unwrap();
        std::fs::write(self.place(&request.id).join("disk.img"), "its files").unwrap();
        if let Some(kept) = kept {
            server.pause(&request.id, kept).await.unwrap();
        }
        request
    }

    pub(crate) fn runs(&self, id: &SandboxId) -> bool {
        self.machine.alive.lock().contains_key(id)
    }
}

pub(crate) fn broken(server: &LocalNode, id: &SandboxId) -> Broken {
    let all = server.broken();
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(&all[0].id, id);
    all[0].clone()
}

/// What a disk answers that does not give what it holds.
pub(crate) fn eio() -> i32 {
    rustix::io::Errno::IO.raw_os_error()
}
