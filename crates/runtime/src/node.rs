use std::{fmt, pin::Pin, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::Stream;
use serde::{Deserialize, Serialize};
use soulbox_types::{
    EndReason, Limits, NetworkPolicy, PauseMode, SandboxId, SandboxSpec, TemplateId, TenantId,
    Tier, UnixMillis,
};
use tokio::sync::broadcast;

use crate::{
    DynStream, Paused, Reservation, ReserveRequest, Result, SandboxStatus, Stats, StatusCache,
    Visited,
};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeEvent {
    Ended {
        id: SandboxId,
        reason: EndReason,
        detail: String,
    },
    /// Connections into it are to be cut: nobody inside answers any more.
    Paused { id: SandboxId },
    /// The kernel killed so many processes inside for lack of memory.
    OutOfMemory {
        id: SandboxId,
        killed: u64,
        memory_mib: u32,
    },
}

/// What a tenant's sandboxes take of the node's disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskUse {
    /// Running and paused: the bytes that each one's disk really takes.
    pub sandboxes: Vec<(SandboxId, u64)>,
    /// How many logs of ended ones, and their bytes.
    pub ended_logs: (u64, u64),
}

/// Why a sandbox is not there any more.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct End {
    pub spec: Arc<SandboxSpec>,
    pub reason: EndReason,
    /// For people.
    pub detail: String,
    /// When its end began or, if nobody saw that, when it was found.
    pub at: UnixMillis,
}

/// A sandbox that is there and cannot be used, since something of its state could not be read or is
/// not what was written. Its files are kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Broken {
    pub id: SandboxId,
    /// As far as it could be read.
    pub spec: Option<Arc<SandboxSpec>>,
    /// For people: what is wrong with it.
    pub reason: String,
    /// When that was found.
    pub at: UnixMillis,
    /// What its disk takes of the machine's.
    pub disk_bytes: u64,
    pub remedy: Remedy,
    /// It may be that nobody was ever told of it.
    pub unsure: bool,
}

/// What can be done about a [`Broken`] one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Remedy {
    /// It comes back, paused, from its files.
    Repair,
    /// What it was made of is not known: only its disk can be had.
    Export,
    /// It could not be read this time, was left as it is, and may run: it can be tried again.
    Retry,
}

/// One sample of a sandbox's use, taken every few seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MetricSample {
    pub at: UnixMillis,
    pub cpu_used_pct: f64,
    pub stats: Stats,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Debug,
    Info,
    Warn,
    Error,
}

/// A line of a sandbox's log: what the node did with it and what envd reports (bytes from inside:
/// show them, never trust them).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LogEntry {
    pub at: UnixMillis,
    pub level: LogLevel,
    pub logger: String,
    pub message: String,
    #[serde(default)]
    pub fields: std::collections::BTreeMap<String, String>,
}

/// The files of a sandbox at one moment, from which others can be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Snapshots are used like templates, so their ids are of the same kind.
    pub id: TemplateId,
    pub source: SandboxId,
    /// The template at the bottom.
    pub template: TemplateId,
    /// Its build, as in [`SandboxSpec::build`].
    #[serde(default)]
    pub build: Option<String>,
    /// Of its source. Snapshots from before there was a choice have none: those are of jails.
    #[serde(default)]
    pub tier: Tier,
    /// The snapshots below this one, nearest first.
    pub parents: Vec<TemplateId>,
    pub limits: Limits,
    pub created_at: UnixMillis,
    /// Bytes of data in the image (holes not counted).
    pub bytes: u64,
    /// BLAKE3 of the image, hex; verified before it is used.
    pub checksum: String,
}

/// Who wakes a sandbox for traffic: it must have a place among its tenant's running ones.
#[async_trait]
pub trait Waker: Send + Sync + fmt::Debug {
    /// As [`Node::resume`] with [`PauseMode::Memory`].
    async fn wake(&self, id: &SandboxId, deadline: UnixMillis) -> Result<(), NotWoken>;
}

/// Why traffic could not wake a sandbox.
#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotWoken {
    /// Its tenant has as many running ones as it may have.
    #[error("its owner has reached the maximum number of concurrent sandboxes ({0})")]
    TooMany(u32),
    #[error(transparent)]
    Node(#[from] crate::Error),
}

/// The bytes of a disk image. It is mostly holes, so it comes in chunks: where one begins and how
/// long it is (8 bytes each, big endian), then its data. The last one has no data and begins where the
/// disk ends; a stream that ends with an error has no such chunk, so nobody takes it for the whole disk.
pub type DiskStream = Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>;

/// A machine that runs sandboxes. Only those of [`soulbox_types::Purpose::User`] are seen by `get`
/// and `list`. It may be elsewhere: nothing here is named by its path; what only one beside it can ask
/// is in [`crate::BuildNode`].
#[async_trait]
pub trait Node: Send + Sync + fmt::Debug {
    /// Returns when envd inside answers. On error nothing is left of it.
    /// A second call with the same id is answered with the first one's sandbox.
    /// What is reserved under its id serves it; without a reservation everything is made.
    async fn create(&self, spec: SandboxSpec) -> Result<SandboxStatus>;

    /// Keeps something for a `create` with the reservation's id: a warm sandbox, one that waits or
    /// else one that is being made; a prepared slot; or only an id. Every call with a pool key counts
    /// as demand. A warm sandbox whose reservation is released ends: its id may have been written down.
    async fn reserve(&self, _request: ReserveRequest) -> Result<Reservation> {
        Ok(Reservation::fresh())
    }

    /// New sandboxes are not made of this build any more: those that wait are let go.
    fn retire(&self, _build: &str) {}

    /// Idempotent. When it returns, dialling fails and nothing of it runs.
    async fn destroy(&self, id: &SandboxId, reason: EndReason) -> Result<()>;

    /// Ends of users' sandboxes, also those found at start, that [`Self::forget_end`] was not told
    /// of: whoever should have recorded them may have died before. One that failed to be made is
    /// only here when that was found at start.
    async fn unrecorded_ends(&self) -> Vec<End> {
        Vec::new()
    }

    /// The end is on record, or nobody will ask for it.
    async fn forget_end(&self, _id: &SandboxId) {}

    /// Moves the end of its life, durably. The node itself enforces it.
    async fn set_deadline(&self, id: &SandboxId, deadline: UnixMillis) -> Result<()>;

    /// Replaces the network settings of a running sandbox, durably; what it may reach changes for new
    /// connections. [`crate::Error::WrongState`] when it is not running.
    async fn set_network(&self, id: &SandboxId, network: NetworkPolicy) -> Result<()>;

    /// Pauses a running sandbox, durably. [`crate::Error::WrongState`] when it is not running.
    async fn pause(&self, id: &SandboxId, keep: PauseMode) -> Result<()>;

    /// Wakes a paused sandbox and says what came back; `Memory` when it was running all along
    /// (its deadline is then left alone). `want` [`PauseMode::Filesystem`] starts it anew from its files.
    async fn resume(
        &self,
        id: &SandboxId,
        deadline: UnixMillis,
        want: PauseMode,
    ) -> Result<PauseMode>;

    /// Captures the files of a running or paused sandbox, which goes on. On error nothing is left
    /// of the snapshot and the sandbox is as before.
    async fn snapshot(&self, id: &SandboxId, snapshot: TemplateId) -> Result<Snapshot>;

    /// Idempotent. [`crate::Error::InUse`] while a sandbox or another snapshot stands on it.
    async fn delete_snapshot(&self, snapshot: &TemplateId) -> Result<()>;

    /// From memory.
    fn snapshots(&self) -> Vec<Snapshot>;

    /// Whether something is kept of which is not known what it stands on: then nothing that could be
    /// below it is removed.
    fn keeps_unknown(&self) -> bool {
        false
    }

    /// Those that are there and cannot be used. None of them is in [`Self::list`]. From memory.
    fn broken(&self) -> Vec<Broken> {
        Vec::new()
    }

    /// Brings a broken one back, as far as it can be: see [`Remedy`]. On error it is as before.
    async fn recover(&self, id: &SandboxId) -> Result<SandboxStatus> {
        Err(crate::Error::SandboxNotFound(id.clone()))
    }

    /// Looks once more at a broken one that was left alone ([`Remedy::Retry`]). `None`: it is still
    /// broken, or was not. Nothing is lost that the next start would keep.
    async fn look_again(&self, _id: &SandboxId) -> Result<Option<SandboxStatus>> {
        Ok(None)
    }

    /// The disk of a broken one that does not run: an ext4 image, of which nothing is to be believed.
    async fn broken_disk(&self, id: &SandboxId) -> Result<DiskStream> {
        Err(crate::Error::SandboxNotFound(id.clone()))
    }

    /// Removes a broken one that does not run, with its files. [`crate::Error::SandboxNotFound`] when
    /// it is not broken (any more).
    async fn discard(&self, _id: &SandboxId) -> Result<()> {
        Ok(())
    }

    /// The sandboxes of users, as they are. A change is there before the call that made it returns.
    fn statuses(&self) -> &StatusCache;

    /// `None` when it is not here (any more). From memory.
    fn get(&self, id: &SandboxId) -> Option<SandboxStatus> {
        self.statuses().get(id)
    }

    /// How a sandbox is paused; `None` when it is not paused. From memory.
    fn paused(&self, id: &SandboxId) -> Option<Paused> {
        self.get(id)?.paused
    }

    /// See [`StatusCache::visit`].
    fn visit(&self, tenant: Option<&TenantId>, each: &mut dyn FnMut(Visited<'_>)) {
        self.statuses().visit(tenant, each);
    }

    /// All of them. From memory.
    fn list(&self) -> Vec<SandboxStatus> {
        let mut all = Vec::new();
        self.visit(None, &mut |visited| all.push(visited.status()));
        all
    }

    /// A connection to a port inside. [`crate::Error::PortClosed`] when nothing listens.
    async fn dial(&self, id: &SandboxId, port: u16) -> Result<DynStream>;

    async fn stats(&self, id: &SandboxId) -> Result<Stats>;

    /// Samples taken so far, oldest first.
    fn metrics(&self, id: &SandboxId) -> Vec<MetricSample>;

    /// For its owner to see what takes room.
    async fn disk_use(&self, _tenant: &TenantId) -> Result<DiskUse> {
        Ok(DiskUse::default())
    }

    /// Removes the logs of a tenant's ended sandboxes.
    async fn clear_ended_logs(&self, _tenant: &TenantId) {}

    /// The sandbox's log, oldest first, bounded. Also of one that has ended, for a day.
    async fn logs(&self, id: &SandboxId) -> Result<Vec<LogEntry>>;

    fn events(&self) -> broadcast::Receiver<NodeEvent>;
}
