//! Changing what a sandbox may reach while it runs.

use std::sync::Arc;

use soulbox_runtime::{Error, LogLevel, Result};
use soulbox_types::{NetworkPolicy, SandboxId, SandboxState};

use crate::{LocalNode, local::blocking};

impl LocalNode {
    pub(crate) async fn set_network_in_task(
        self: Arc<Self>,
        id: SandboxId,
        network: NetworkPolicy,
    ) -> Result<()> {
        let transition_lock = self.transition_lock(&id)?;
        let _ours = transition_lock.lock().await;
        let (folder, old) = {
            let entries = self.entries().lock();
            let entry = entries
                .get(&id)
                .ok_or_else(|| Error::SandboxNotFound(id.clone()))?;
            if entry.state() != SandboxState::Running {
                return Err(Error::WrongState {
                    id,
                    state: entry.state(),
                });
            }
            (entry.folder.clone(), entry.spec.clone())
        };
        let mut new = old.clone();
        Arc::make_mut(&mut new).network = network.clone();
        // On disk first: a server that dies in between carries it out when it adopts the sandbox.
        let writing = folder.clone();
        blocking(move || writing.change(&new)).await?;
        if let Err(error) = self.runtime_of(&id)?.set_network(&id, &network).await {
            blocking(move || folder.change(&old)).await?;
            return Err(error);
        }
        if let Some(mut entry) = self.entries().lock().get_mut(&id) {
            Arc::make_mut(&mut entry.spec).network = network;
            entry.note(LogLevel::Info, "network rules changed");
        }
        Ok(())
    }
}
