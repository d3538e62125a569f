//! What a build's sandbox added to its template.

use std::{path::PathBuf, sync::Arc};

use soulbox_runtime::{AddedLayer, Error, Result};
use soulbox_types::{SandboxId, SandboxState};

use crate::LocalNode;

impl LocalNode {
    /// Its processes end here, so all that is left to do with it is to destroy it.
    pub(crate) async fn export_in_task(
        self: Arc<Self>,
        id: SandboxId,
        target: PathBuf,
    ) -> Result<Vec<AddedLayer>> {
        let turn = self.turn(&id)?;
        let _ours = turn.lock().await;
        {
            let mut entries = self.entries().lock();
            let entry = entries
                .get_mut(&id)
                .ok_or_else(|| Error::SandboxNotFound(id.clone()))?;
            if entry.state != SandboxState::Running {
                return Err(Error::WrongState {
                    id,
                    state: entry.state,
                });
            }
            if entry.spec.snapshot.is_some() {
                return Err(Error::Unsupported {
                    tier: self.runtime().tier(),
                    what: "a layer of what stands on a snapshot",
                });
            }
            // From here on nobody dials it, and its end is no death.
            entry.state = SandboxState::Paused;
            entry.leave_alone();
        }
        self.runtime().export(&id, &target).await
    }
}
