use std::path::Path;

use async_trait::async_trait;
use soulbox_types::SandboxId;

use crate::{AddedLayer, Node, Result};

/// What a builder needs of its node. It runs beside it, on the same machine: both know the same
/// folders. Nobody else asks a node by path.
#[async_trait]
pub trait BuildNode: Node {
    /// See [`crate::Runtime::export`]. For sandboxes of [`soulbox_types::Purpose::Build`].
    async fn export(&self, id: &SandboxId, target: &Path) -> Result<Vec<AddedLayer>>;
}
