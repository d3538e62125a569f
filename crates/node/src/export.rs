//! What a build's sandbox added to its template.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use soulbox_runtime::{AddedLayer, Error, Result};
use soulbox_types::{SandboxId, SandboxState};

use crate::{LocalNode, local::blocking};

/// At what a disk takes in a second, little of the reserve goes in between.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl LocalNode {
    /// Its processes end here, so all that is left to do with it is to destroy it.
    pub(crate) async fn export_in_task(
        self: Arc<Self>,
        id: SandboxId,
        target: PathBuf,
    ) -> Result<Vec<AddedLayer>> {
        let transition_lock = self.transition_lock(&id)?;
        let _ours = transition_lock.lock().await;
        self.check_export(&id, &target).await?;
        {
            let mut entries = self.entries().lock();
            let mut entry = entries
                .get_mut(&id)
                .ok_or_else(|| Error::SandboxNotFound(id.clone()))?;
            if entry.spec.snapshot.is_some() {
                return Err(Error::Unsupported {
                    tier: entry.spec.tier,
                    what: "a layer of what stands on a snapshot".into(),
                });
            }
            // From here on nobody dials it, and its end is no death.
            entry.transition(SandboxState::Paused)?;
            entry.leave_alone();
        }
        let runtime = self.runtime_of(&id)?;
        tokio::select! {
            biased;
            // Gone away from, it leaves nothing.
            exported = runtime.export(&id, &target) => exported,
            full = self.until_full(&target) => Err(full),
        }
    }

    /// Its image may hold more than what it added, never less.
    async fn check_export(self: &Arc<Self>, id: &SandboxId, target: &Path) -> Result<()> {
        let (node, folder, place) = (Arc::clone(self), self.folder(id), place_of(target));
        blocking(move || {
            let space = node.space_at(&place)?;
            space.check_room_for(folder.disk_bytes())
        })
        .await
    }

    /// Others write too, and small files take more room on one disk than on another.
    async fn until_full(self: &Arc<Self>, target: &Path) -> Error {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let (node, place) = (Arc::clone(self), place_of(target));
            if let Err(full) = blocking(move || node.space_at(&place)?.check_room_for(0)).await {
                return full;
            }
        }
    }
}

/// The folder that is there already.
fn place_of(target: &Path) -> PathBuf {
    target.parent().unwrap_or(Path::new("/")).to_owned()
}
