//! Sandboxes that cannot be used: what their owners can do about them.

use std::{collections::HashMap, sync::Arc};

use soulbox_runtime::{Broken, DiskStream, Error as NodeError, Remedy};
use soulbox_store::EndRow;
use soulbox_types::{Chain, EndReason, SandboxId, SandboxSpec, TenantId, UnixMillis};
use tracing::Instrument;

use crate::{Control, Error, Result, Sandbox, Tenant};

/// A sandbox that is there and cannot be used. Its files are kept.
#[derive(Debug, Clone)]
pub struct BrokenSandbox {
    pub broken: Broken,
    pub template: String,
    pub metadata: std::collections::BTreeMap<String, String>,
}

impl Control {
    /// Of the tenant, oldest first. Whose one is of which nothing can be read, the store knows.
    pub async fn broken(&self, tenant: &Tenant) -> Result<Vec<BrokenSandbox>> {
        let broken = self.node.broken();
        if broken.is_empty() {
            return Ok(Vec::new());
        }
        let rows = self.store.live_sandboxes().await?.into_iter();
        let rows: HashMap<SandboxId, _> = rows
            .filter(|row| row.tenant == tenant.id)
            .map(|row| (row.id.clone(), row))
            .collect();
        let own = broken.into_iter().filter_map(|broken| {
            let row = rows.get(&broken.id)?;
            Some(BrokenSandbox {
                template: row.template.to_string(),
                metadata: row.metadata.clone(),
                broken,
            })
        });
        let mut own: Vec<_> = own.collect();
        own.sort_by_key(|each| (each.broken.at, each.broken.id.clone()));
        Ok(own)
    }

    /// Brings one back, paused, from its files; one that was only unreadable for a while goes on
    /// as it is.
    pub async fn recover(self: &Arc<Self>, tenant: &Tenant, id: &SandboxId) -> Result<Sandbox> {
        self.own_broken(tenant, id).await?;
        let (control, id) = (Arc::clone(self), id.clone());
        let tenant = tenant.clone();
        let work = async move {
            let status = match control.node.recover(&id).await {
                Err(NodeError::SandboxNotFound(id)) => return Err(Error::NotBroken(id)),
                recovered => recovered?,
            };
            control.take_back(&tenant.id, &status.spec).await;
            control.get(&tenant, &id).await
        };
        self.finish(work.in_current_span()).await
    }

    /// One that the node has again.
    async fn take_back(&self, tenant: &TenantId, spec: &SandboxSpec) {
        // Before it can be woken.
        self.mount_volumes_of(spec).await;
        let paused_at = Some(UnixMillis::now());
        self.registry.adopt(&spec.id, tenant, paused_at);
        self.learn(spec);
        self.note_event(&spec.id, "recovered", serde_json::Map::new());
        tracing::info!(sandbox_id = %spec.id, "sandbox recovered");
    }

    /// Looks whether what could not be taken up at the start can be now: until then it runs without a
    /// deadline, and nobody can reach it. Without making anybody wait; one round at a time.
    pub(crate) fn look_again_later(self: &Arc<Self>) {
        let left = self.node.broken().into_iter();
        let left: Vec<_> = left.filter(|each| each.remedy == Remedy::Retry).collect();
        if left.is_empty() {
            return;
        }
        let Ok(ours) = Arc::clone(&self.looking_again).try_lock_owned() else {
            return;
        };
        let control = Arc::clone(self);
        self.in_background(async move {
            let _ours = ours;
            for broken in left {
                if control.is_draining() {
                    return;
                }
                if let Err(error) = control.look_again(&broken.id).await {
                    tracing::warn!(sandbox_id = %broken.id, error = %Chain(&error), "a broken sandbox could not be looked at again");
                }
            }
        });
    }

    async fn look_again(self: &Arc<Self>, id: &SandboxId) -> Result<()> {
        let Some(status) = self.node.look_again(id).await? else {
            return Ok(());
        };
        match self.store.sandbox(id).await? {
            Some(row) if row.end.is_none() => self.take_back(&row.tenant, &status.spec).await,
            // As a start would find it: nobody's, or over.
            _ => {
                self.reconcile_running(&status, None, UnixMillis::now())
                    .await?;
            }
        }
        Ok(())
    }

    /// The disk of one that does not run, as it is.
    pub async fn broken_disk(&self, tenant: &Tenant, id: &SandboxId) -> Result<DiskStream> {
        self.own_broken(tenant, id).await?;
        Ok(self.node.broken_disk(id).await?)
    }

    /// Removes one for good.
    pub async fn discard(self: &Arc<Self>, tenant: &Tenant, id: &SandboxId) -> Result<()> {
        let broken = self.own_broken(tenant, id).await?;
        let (control, id) = (Arc::clone(self), id.clone());
        let work = async move {
            match control.node.discard(&id).await {
                // Somebody else has recovered or discarded it.
                Err(NodeError::SandboxNotFound(id)) => return Err(Error::NotBroken(id)),
                discarded => discarded?,
            }
            let detail = format!("given up by its owner: {}", broken.broken.reason);
            let row = control.store.sandbox(&id).await?;
            let end = EndRow::now(EndReason::Lost, &detail);
            control.store.end_sandbox(&id, &end).await?;
            if let Some(row) = row {
                let spec = broken.broken.spec.as_deref();
                control.note_ended_before(row, spec, EndReason::Lost);
            }
            Ok(())
        };
        self.finish(work.in_current_span()).await
    }

    async fn own_broken(&self, tenant: &Tenant, id: &SandboxId) -> Result<BrokenSandbox> {
        let own = self.broken(tenant).await?.into_iter();
        own.into_iter()
            .find(|each| each.broken.id == *id)
            .ok_or_else(|| Error::NotBroken(id.clone()))
    }

    /// What sandboxes were made of that are there, broken ones included.
    pub(crate) fn specs_in_use(&self) -> impl Iterator<Item = Arc<SandboxSpec>> {
        // In this order: one that is recovered meanwhile is in both.
        let broken = self.node.broken().into_iter();
        let whole = self.node.list().into_iter().map(|status| status.spec);
        broken.filter_map(|broken| broken.spec).chain(whole)
    }
}

impl BrokenSandbox {
    /// What can be done, in a word.
    pub fn remedy(&self) -> &'static str {
        match self.broken.remedy {
            Remedy::Repair => "repair",
            Remedy::Export => "export",
            Remedy::Retry => "retry",
        }
    }
}
