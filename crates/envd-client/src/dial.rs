//! Opens connections to a port inside a sandbox.

use std::sync::Arc;

use async_trait::async_trait;
use soulbox_runtime::{DynStream, Node, Runtime};
use soulbox_types::SandboxId;

/// Opens connections into one sandbox.
#[async_trait]
pub trait Dial: Send + Sync {
    async fn dial(&self, port: u16) -> soulbox_runtime::Result<DynStream>;
}

/// Through the node that runs it.
#[derive(Debug, Clone)]
pub struct NodeDial {
    node: Arc<dyn Node>,
    id: SandboxId,
}

impl NodeDial {
    pub fn new(node: Arc<dyn Node>, id: SandboxId) -> Self {
        Self { node, id }
    }
}

#[async_trait]
impl Dial for NodeDial {
    async fn dial(&self, port: u16) -> soulbox_runtime::Result<DynStream> {
        self.node.dial(&self.id, port).await
    }
}

/// Straight through the tier, for the node itself.
#[derive(Debug, Clone)]
pub struct RuntimeDial {
    runtime: Arc<dyn Runtime>,
    id: SandboxId,
}

impl RuntimeDial {
    pub fn new(runtime: Arc<dyn Runtime>, id: SandboxId) -> Self {
        Self { runtime, id }
    }
}

#[async_trait]
impl Dial for RuntimeDial {
    async fn dial(&self, port: u16) -> soulbox_runtime::Result<DynStream> {
        self.runtime.dial(&self.id, port).await
    }
}
