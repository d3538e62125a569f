//! A sandbox is made: put on record, let in, started, opened up.

use std::{sync::Arc, time::Duration};

use soulbox_runtime::{Disk, Error, LogLevel, NewSandbox, Result, SandboxStatus, Started, Stats};
use soulbox_template::Template;
use soulbox_types::{EndReason, Purpose, SandboxId, SandboxSpec, SandboxState};
use tokio_util::sync::CancellationToken;

use super::{DESTROY_LIMIT, LocalNode, RETRY_PAUSE, blocking};
use crate::{
    admission::{Ask, CapacityReservation, Resource},
    entry::{Entry, STARTED},
    folder::Folder,
};

impl LocalNode {
    pub(super) async fn create_in_task(
        self: Arc<Self>,
        spec: SandboxSpec,
    ) -> Result<SandboxStatus> {
        let create = self.creates.begin(&spec.id);
        self.stuck_ends.check()?;
        if spec.purpose == Purpose::User
            && let Some(status) = self.hand_over(&spec, &create).await?
        {
            return Ok(status);
        }
        let _waiting = self.creates.wait();
        match self.make(&spec).await? {
            Some(_capacity) => self.open_up(&spec).await,
            None => self.existing(&spec.id).await,
        }
    }

    /// Starts its processes, when there is room. What it will use is set aside until it is ready.
    /// `None`: it is here already. On error nothing is left.
    pub(crate) async fn make(
        self: &Arc<Self>,
        spec: &SandboxSpec,
    ) -> Result<Option<CapacityReservation>> {
        let Some((folder, ending)) = self.begin(spec)? else {
            return Ok(None);
        };
        let ask = match spec.purpose {
            Purpose::Warm => Ask::Warm,
            Purpose::User | Purpose::Build => Ask::New,
        };
        let permit = match self.admit(spec, ask, &ending).await {
            Ok(permit) => permit,
            Err(error) => {
                self.withdraw(&spec.id);
                return Err(error);
            }
        };
        let result = async {
            let (written, request, starts) = (folder.clone(), spec.clone(), self.starts(spec));
            blocking(move || {
                written.create(&request)?;
                if starts { written.unready() } else { Ok(()) }
            })
            .await?;
            let started = |running: &_| folder.started(running);
            self.start_processes(spec, Disk::Fresh, &started).await
        }
        .await;
        if let Some(entry) = self.entries.lock().get(&spec.id) {
            entry.made.send_replace(true);
        }
        let capacity = permit.started();
        if let Err(error) = result {
            if matches!(error, Error::NoCapacity { .. }) {
                // The only thing that the tier itself can be short of.
                self.admission.count_refusal(Resource::Slots);
            }
            self.give_up_making(spec, &error).await;
            return Err(error);
        }
        Ok(Some(capacity))
    }

    /// With the build and the snapshots that the spec names. On error nothing runs.
    pub(crate) async fn start_processes(
        self: &Arc<Self>,
        spec: &SandboxSpec,
        disk: Disk,
        started: &Started<'_>,
    ) -> Result<()> {
        let template = self
            .templates()
            .of(spec)
            .ok_or_else(|| Error::TemplateNotFound(spec.template.clone()))?;
        let new = NewSandbox {
            spec,
            template: &template,
            origin: self.origin(spec, disk).await?,
        };
        self.runtime(spec.tier)?.create(new, started).await
    }

    /// Ends what could not be made, or leaves that to a task when it takes long. A create that took it
    /// over makes another one under its id, so it is not the end of theirs; unless somebody has ended
    /// that already.
    pub(crate) async fn give_up_making(self: &Arc<Self>, spec: &SandboxSpec, error: &Error) {
        if spec.purpose == Purpose::Warm {
            self.make_nobodys(&spec.id);
        }
        self.finish_or_leave(&spec.id, EndReason::CreateFailed, &error.to_string())
            .await;
    }

    /// Puts it on record, in memory: from now on it can be ended. `None`: it is here already.
    fn begin(&self, spec: &SandboxSpec) -> Result<Option<(Folder, CancellationToken)>> {
        let folder = self.folder(&spec.id);
        let mut entries = self.entries.lock();
        if entries.contains(&spec.id) {
            return Ok(None);
        }
        self.runtimes.get(spec.tier)?;
        if self.creates.is_killed(&spec.id) {
            return Err(Error::SandboxNotFound(spec.id.clone()));
        }
        if spec.purpose == Purpose::Warm && self.pool.is_closed() {
            return Err(Error::NoCapacity {
                what: "the server stops".to_owned(),
                retry_after: RETRY_PAUSE,
            });
        }
        if let Some(snapshot) = &spec.snapshot
            && self.snapshots.get(snapshot).is_none()
        {
            return Err(Error::TemplateNotFound(snapshot.clone()));
        }
        let entry = Entry::new(spec.clone(), SandboxState::Creating, folder.clone());
        let ending = entry.ending.clone();
        entries.insert(entry);
        Ok(Some((folder, ending)))
    }

    /// It was not let in, and nothing was made. One whose end has begun is finished by whoever
    /// began it.
    fn withdraw(&self, id: &SandboxId) {
        let withdrawn = {
            let mut entries = self.entries.lock();
            if let Some(entry) = entries.get(id) {
                entry.made.send_replace(true);
            }
            let waits = |entry: &Entry| entry.state() == SandboxState::Creating;
            match entries.get(id) {
                Some(entry) if waits(entry) => entries.remove(id),
                _ => None,
            }
        };
        if let Some(entry) = withdrawn {
            entry.gone.send_replace(true);
        }
    }

    /// Makes a sandbox whose processes run one that can be used, unless it became another's
    /// meanwhile: they open it up. On error nothing is left.
    pub(crate) async fn open_up(self: &Arc<Self>, spec: &SandboxSpec) -> Result<SandboxStatus> {
        let id = &spec.id;
        if let Err(error) = self.get_ready_on_record(spec).await {
            self.give_up_making(spec, &error).await;
            return Err(error);
        }
        let status = {
            let mut entries = self.entries.lock();
            let mut entry = entries
                .get_mut(id)
                .ok_or_else(|| Error::SandboxNotFound(id.clone()))?;
            if entry.spec.purpose != spec.purpose && entry.state() == SandboxState::Creating {
                return Ok(entry.status());
            }
            // Not if it was ended while it was being made: whoever did that waited for us and
            // cleans up.
            entry.transition(SandboxState::Running)?;
            entry.note(LogLevel::Info, STARTED);
            entry.status()
        };
        self.watch_over(id);
        self.learn_what_it_needs(spec);
        Ok(status)
    }

    /// Of a template with a start command: others are all alike.
    fn learn_what_it_needs(self: &Arc<Self>, spec: &SandboxSpec) {
        let has_start = |template: &Template| template.start.is_some();
        if spec.purpose != Purpose::User
            || !self.templates().of(spec).is_some_and(|t| has_start(&t))
        {
            return;
        }
        let (node, spec) = (Arc::clone(self), spec.clone());
        tokio::spawn(async move {
            if let Ok(runtime) = node.runtime(spec.tier)
                && let Ok(stats) = runtime.stats(&spec.id).await
            {
                node.learn(&spec, &stats);
            }
        });
    }

    pub(crate) fn learn(&self, spec: &SandboxSpec, stats: &Stats) {
        let used = stats.memory_bytes.saturating_sub(stats.memory_cache_bytes);
        self.admission.estimates.learn(spec, used);
    }

    /// A second create of the same sandbox waits for the first.
    async fn existing(&self, id: &SandboxId) -> Result<SandboxStatus> {
        let waited = tokio::time::timeout(DESTROY_LIMIT, async {
            loop {
                let status = self.entries.lock().get(id).map(Entry::status);
                match status {
                    Some(status) if status.state == SandboxState::Destroying => {
                        return Err(Error::SandboxNotFound(id.clone()));
                    }
                    Some(status) if status.state == SandboxState::Creating => {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    Some(status) => return Ok(status),
                    None => return Err(Error::SandboxNotFound(id.clone())),
                }
            }
        });
        waited.await.map_err(|_| Error::Timeout {
            what: "the first create".into(),
            limit: DESTROY_LIMIT,
        })?
    }
}
