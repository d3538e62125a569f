//! The way into a running sandbox for what the server itself does there.

use std::sync::Arc;

use soulbox_envd_client::{EnvdClient, NodeDial};
use soulbox_types::SandboxId;

use crate::{Control, Result, Tenant};

impl Control {
    /// Its envd, when the sandbox is the tenant's and runs.
    pub async fn enter(&self, tenant: &Tenant, id: &SandboxId) -> Result<EnvdClient> {
        let status = self.running(tenant, id).await?;
        let dial = NodeDial::new(Arc::clone(&self.node), id.clone());
        Ok(EnvdClient::new(Arc::new(dial), &status.spec))
    }
}
