//! Taking and removing snapshots.

use std::sync::Arc;

use soulbox_runtime::{Error, LogLevel, Origin, Result, Snapshot};
use soulbox_types::{SandboxId, SandboxSpec, SandboxState, TemplateId, UnixMillis};

use crate::{LocalNode, local::blocking, snapshots::DEEPEST};

impl LocalNode {
    pub(crate) async fn snapshot_in_task(
        self: Arc<Self>,
        id: SandboxId,
        snapshot: TemplateId,
    ) -> Result<Snapshot> {
        let transition_lock = self.transition_lock(&id)?;
        let _ours = transition_lock.lock().await;
        let spec = {
            let entries = self.entries().lock();
            match entries.get(&id) {
                Some(entry)
                    if matches!(entry.state(), SandboxState::Running | SandboxState::Paused) =>
                {
                    entry.spec.clone()
                }
                _ => return Err(Error::SandboxNotFound(id)),
            }
        };
        let parents = self.parents(&spec)?;
        if parents.len() >= DEEPEST {
            return Err(Error::InUse {
                what: format!("the limit of {DEEPEST} snapshots on top of each other"),
                users: format!("sandbox {id}: start from its template and copy the files instead"),
            });
        }
        self.check_disk()?;
        let image = self.snapshots_of().begin(&snapshot)?;
        let taken = async {
            self.runtime_of(&id)?.capture(&id, &image).await?;
            let whole = Snapshot {
                id: snapshot.clone(),
                source: id.clone(),
                template: spec.template.clone(),
                build: spec.build.clone(),
                tier: spec.tier,
                parents,
                limits: spec.limits,
                created_at: UnixMillis::now(),
                bytes: 0,
                checksum: String::new(),
            };
            let node = Arc::clone(&self);
            blocking(move || node.snapshots_of().finish(whole)).await
        }
        .await;
        if taken.is_err() {
            let (node, unfinished) = (Arc::clone(&self), snapshot.clone());
            blocking(move || {
                node.snapshots_of().abandon(&unfinished);
                Ok(())
            })
            .await?;
        }
        if let Some(mut entry) = self.entries().lock().get_mut(&id) {
            match &taken {
                Ok(_) => entry.note(LogLevel::Info, format!("snapshot {snapshot} taken")),
                Err(error) => entry.note(LogLevel::Error, format!("no snapshot: {error}")),
            }
        }
        taken
    }

    pub(crate) async fn delete_snapshot_in_task(
        self: Arc<Self>,
        snapshot: TemplateId,
    ) -> Result<()> {
        let forgotten = {
            // Held while forgetting: a create that names it comes before or after, not between.
            let entries = self.entries().lock();
            let stands = |spec: &SandboxSpec| {
                let parents = self.parents(spec).unwrap_or_default();
                parents.contains(&snapshot) || spec.snapshot.as_ref() == Some(&snapshot)
            };
            let sandboxes: Vec<_> = entries.values().filter(|e| stands(&e.spec)).collect();
            if let Some(first) = sandboxes.first() {
                return Err(Error::InUse {
                    what: format!("snapshot {snapshot}"),
                    users: format!(
                        "{} sandboxes, sandbox {} among them",
                        sandboxes.len(),
                        first.id()
                    ),
                });
            }
            if let Some(broken) = self.broken_on(&snapshot) {
                return Err(Error::InUse {
                    what: format!("snapshot {snapshot}"),
                    users: format!("the broken sandbox {broken} (see `soulbox ls --broken`)"),
                });
            }
            if soulbox_runtime::Node::keeps_unknown(&*self) {
                return Err(Error::InUse {
                    what: format!("snapshot {snapshot}"),
                    users:
                        "perhaps something that is kept and cannot be read (the server's log, and \
                            `soulbox ls --broken` of its owner, name it)"
                            .to_owned(),
                });
            }
            let above = self.snapshots_of().list();
            if let Some(other) = above.iter().find(|s| s.parents.contains(&snapshot)) {
                return Err(Error::InUse {
                    what: format!("snapshot {snapshot}"),
                    users: format!("snapshot {}", other.id),
                });
            }
            self.snapshots_of().forget(&snapshot)
        };
        blocking(move || self.snapshots_of().remove(&snapshot, forgotten)).await
    }

    /// The snapshots that a sandbox stands on, nearest first.
    pub(crate) fn parents(&self, spec: &SandboxSpec) -> Result<Vec<TemplateId>> {
        let Some(top) = &spec.snapshot else {
            return Ok(Vec::new());
        };
        let snapshot = self
            .snapshots_of()
            .get(top)
            .ok_or_else(|| self.snapshots_of().missing(top))?;
        Ok(std::iter::once(top.clone())
            .chain(snapshot.parents)
            .collect())
    }

    /// What a sandbox's files are made of.
    pub(crate) async fn origin(
        self: &Arc<Self>,
        spec: &SandboxSpec,
        disk: soulbox_runtime::Disk,
    ) -> Result<Origin> {
        let Some(top) = spec.snapshot.clone() else {
            return Ok(Origin {
                disk,
                snapshots: Vec::new(),
            });
        };
        let node = Arc::clone(self);
        let snapshots = blocking(move || node.snapshots_of().images(&top)).await?;
        Ok(Origin { disk, snapshots })
    }
}
