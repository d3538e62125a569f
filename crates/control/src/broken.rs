//! Sandboxes that cannot be used: what their owners can do about them.

use std::{collections::HashMap, sync::Arc};

use soulbox_runtime::{Broken, Error as NodeError, Remedy};
use soulbox_store::EndRow;
use soulbox_types::{EndReason, SandboxId, SandboxSpec, UnixMillis};
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

    /// Brings one back, at rest, from its files; one that was only unreadable for a while goes on
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
            // Before it can be woken.
            control.mount_volumes_of(&status.spec).await;
            let rested = Some(UnixMillis::now());
            control.registry.adopt(&id, &tenant.id, rested);
            control.learn(&status.spec);
            control.note_event(&id, "recovered", serde_json::Map::new());
            tracing::info!("sandbox recovered");
            control.get(&tenant, &id).await
        };
        self.finish(work.in_current_span()).await
    }

    /// The disk of one that does not run, as it is.
    pub async fn broken_disk(&self, tenant: &Tenant, id: &SandboxId) -> Result<std::fs::File> {
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
