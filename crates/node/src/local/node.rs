//! What others ask of the node.

use std::{collections::HashMap, path::Path, time::Duration};

use async_trait::async_trait;
use soulbox_runtime::{
    AddedLayer, Broken, BuildNode, DiskStream, DiskUse, DynStream, End, Error, LogEntry,
    MetricSample, Node, NodeEvent, Reservation, ReserveRequest, Result, SandboxStatus, Snapshot,
    Stats, StatusCache,
};
use soulbox_types::{
    EndReason, NetworkPolicy, PauseMode, SandboxId, SandboxSpec, TemplateId, TenantId, UnixMillis,
};
use tokio::sync::broadcast;

use super::{LocalNode, blocking, finish::is_recorded, running};
use crate::{entry::Entry, logs};

/// How long one that is ending is waited for by whoever wants its log.
const ENDING_LIMIT: Duration = Duration::from_secs(10);

#[async_trait]
impl Node for LocalNode {
    async fn reserve(&self, request: ReserveRequest) -> Result<Reservation> {
        Ok(self.reserve_for(&request))
    }

    fn retire(&self, build: &str) {
        self.retire_build(build);
    }

    async fn create(&self, spec: SandboxSpec) -> Result<SandboxStatus> {
        in_task(self.owned()?.create_in_task(spec)).await
    }

    async fn destroy(&self, id: &SandboxId, reason: EndReason) -> Result<()> {
        // Before its entry is looked for: a create that has none just now makes none after this.
        self.creates.kill(id);
        self.end_and_wait(id, reason).await
    }

    async fn unrecorded_ends(&self) -> Vec<End> {
        // Those under way first: what leaves them meanwhile is among the files by then.
        let mut all: HashMap<SandboxId, End> = {
            let entries = self.entries.lock();
            let ends = entries.values().filter_map(|entry| entry.end.clone());
            ends.filter(is_recorded)
                .map(|end| (end.spec.id.clone(), end))
                .collect()
        };
        let ends = self.ends.clone();
        match blocking(move || ends.list()).await {
            Ok(written) => all.extend(written.into_iter().map(|end| (end.spec.id.clone(), end))),
            Err(error) => tracing::error!(%error, "why sandboxes ended is not known"),
        }
        all.into_values().collect()
    }

    async fn forget_end(&self, id: &SandboxId) {
        let (ends, id) = (self.ends.clone(), id.clone());
        let forgotten = blocking(move || {
            let failed = |e| Error::io("could not remove the file of an end", e);
            ends.forget(&id).map_err(failed)
        });
        if let Err(error) = forgotten.await {
            // The next start finds it again, and that it is on record.
            tracing::warn!(%error, "an end is not forgotten");
        }
    }

    async fn set_network(&self, id: &SandboxId, network: NetworkPolicy) -> Result<()> {
        in_task(self.owned()?.set_network_in_task(id.clone(), network)).await
    }

    async fn pause(&self, id: &SandboxId, keep: PauseMode) -> Result<()> {
        in_task(self.owned()?.pause_in_task(id.clone(), keep)).await
    }

    async fn resume(
        &self,
        id: &SandboxId,
        deadline: UnixMillis,
        want: PauseMode,
    ) -> Result<PauseMode> {
        in_task(self.owned()?.resume_in_task(id.clone(), deadline, want)).await
    }

    async fn snapshot(&self, id: &SandboxId, snapshot: TemplateId) -> Result<Snapshot> {
        in_task(self.owned()?.snapshot_in_task(id.clone(), snapshot)).await
    }

    async fn delete_snapshot(&self, snapshot: &TemplateId) -> Result<()> {
        in_task(self.owned()?.delete_snapshot_in_task(snapshot.clone())).await
    }

    fn keeps_unknown(&self) -> bool {
        self.quarantine.holds_unknown() || self.snapshots.holds_unreadable()
    }

    fn snapshots(&self) -> Vec<Snapshot> {
        self.snapshots.list()
    }

    fn broken(&self) -> Vec<Broken> {
        self.quarantine.list()
    }

    async fn recover(&self, id: &SandboxId) -> Result<SandboxStatus> {
        in_task(self.owned()?.recover_in_task(id.clone())).await
    }

    async fn look_again(&self, id: &SandboxId) -> Result<Option<SandboxStatus>> {
        in_task(self.owned()?.look_again_in_task(id.clone())).await
    }

    async fn broken_disk(&self, id: &SandboxId) -> Result<DiskStream> {
        self.owned()?.read_broken_disk(id.clone()).await
    }

    async fn discard(&self, id: &SandboxId) -> Result<()> {
        in_task(self.owned()?.discard_in_task(id.clone())).await
    }

    async fn set_deadline(&self, id: &SandboxId, deadline: UnixMillis) -> Result<()> {
        in_task(self.owned()?.set_deadline_in_task(id.clone(), deadline)).await
    }

    fn statuses(&self) -> &StatusCache {
        &self.statuses
    }

    async fn dial(&self, id: &SandboxId, port: u16) -> Result<DynStream> {
        let tier = running(&self.entries.lock(), id)?.spec.tier;
        self.runtimes.get(tier)?.dial(id, port).await
    }

    async fn stats(&self, id: &SandboxId) -> Result<Stats> {
        let tier = running(&self.entries.lock(), id)?.spec.tier;
        self.runtimes.get(tier)?.stats(id).await
    }

    fn metrics(&self, id: &SandboxId) -> Vec<MetricSample> {
        let entries = self.entries.lock();
        entries
            .get(id)
            .filter(|e| e.is_shown())
            .map(Entry::samples)
            .unwrap_or_default()
    }

    async fn logs(&self, id: &SandboxId) -> Result<Vec<LogEntry>> {
        let found = {
            let entries = self.entries.lock();
            match entries.get(id) {
                Some(entry) if entry.is_shown() => Ok((entry.notes(), entry.folder.clone())),
                Some(entry) => Err(Some(entry.gone.subscribe())),
                None => Err(None),
            }
        };
        let (notes, folder) = match found {
            Ok(found) => found,
            Err(gone) => {
                if let Some(mut gone) = gone {
                    // Its log is written when it is gone.
                    let ended = gone.wait_for(|gone| *gone);
                    let _or_not = tokio::time::timeout(ENDING_LIMIT, ended).await;
                }
                let (logs, wanted) = (self.ended_logs(), id.clone());
                let kept = blocking(move || Ok(logs.read(&wanted))).await?;
                return kept.ok_or_else(|| Error::SandboxNotFound(id.clone()));
            }
        };
        // What envd said until the last pause, and what it says now, if anybody answers.
        let kept = self.kept_of_envd(id, folder).await?;
        let said = match self.answering_envd(id) {
            Some(envd) => envd.log().await,
            None => Vec::new(),
        };
        Ok(logs::merged([notes, kept, said]))
    }

    async fn disk_use(&self, tenant: &TenantId) -> Result<DiskUse> {
        let sandboxes: Vec<_> = {
            let entries = self.entries.lock();
            let own = entries
                .values()
                .filter(|e| e.is_shown() && e.spec.tenant == *tenant);
            own.map(|e| (e.id().clone(), e.folder.clone())).collect()
        };
        let logs = self.ended_logs().size(tenant);
        let sandboxes = blocking(move || {
            let sizes = sandboxes
                .into_iter()
                .map(|(id, folder)| (id, folder.disk_bytes()));
            Ok(sizes.collect())
        });
        Ok(DiskUse {
            sandboxes: sandboxes.await?,
            ended_logs: logs,
        })
    }

    async fn clear_ended_logs(&self, tenant: &TenantId) {
        let (logs, tenant) = (self.ended_logs(), tenant.clone());
        let cleared = blocking(move || {
            logs.clear(&tenant);
            Ok(())
        });
        drop(cleared.await);
    }

    fn events(&self) -> broadcast::Receiver<NodeEvent> {
        self.events.subscribe()
    }
}

#[async_trait]
impl BuildNode for LocalNode {
    async fn export(&self, id: &SandboxId, target: &Path) -> Result<Vec<AddedLayer>> {
        in_task(self.owned()?.export_in_task(id.clone(), target.to_owned())).await
    }
}

/// Runs to its end even when the caller goes away.
async fn in_task<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    match tokio::spawn(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::io(
            "a task of the node failed",
            std::io::Error::other(error),
        )),
    }
}
