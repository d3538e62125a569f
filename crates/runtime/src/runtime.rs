use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use soulbox_template::Template;
use soulbox_types::{Limits, NetworkPolicy, SandboxId, SandboxSpec, Tier};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{Error, Result};

/// A connection to a port inside a sandbox.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}
pub type DynStream = Box<dyn ByteStream>;

/// What a tier needs to find its sandbox again after a restart, as the node's state folder keeps it.
/// Opaque to the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    pub tier: Tier,
    /// The tier's own record, JSON.
    pub record: String,
}

/// What was found of a sandbox after a restart of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Adopted {
    /// It is there and serves.
    Alive,
    /// Its first process ended while no server watched. What was left has been cleaned away.
    Gone,
    /// The machine was started anew since: nothing that ran on it runs.
    Rebooted,
}

/// How a sandbox's first process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// For people: `exit status 1`, `signal 9`, `unknown`.
    pub description: String,
}

/// Use of resources now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Cpu time since creation, in microseconds.
    pub cpu_micros: u64,
    pub memory_bytes: u64,
    pub memory_cache_bytes: u64,
    /// The most that it ever was, page cache included; where the kernel tells.
    pub memory_peak_bytes: Option<u64>,
    pub disk_used_bytes: u64,
    pub disk_total_bytes: u64,
    pub pids: u64,
    /// How often the kernel killed something inside for lack of memory.
    pub oom_kills: u64,
}

/// What a sandbox's sockets hold of the host's memory, unread or unsent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketMemory {
    pub bytes: u64,
    /// How many there are.
    pub sockets: u64,
    /// `false`: there was no time to count them all.
    pub complete: bool,
}

/// What a new sandbox's files are made of, above its template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    pub disk: Disk,
    /// Images of the snapshots that it stands on, topmost first.
    pub snapshots: Vec<PathBuf>,
}

/// Where a new sandbox's writable disk comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disk {
    /// An empty one.
    Fresh,
    /// The one that a stopped sandbox of the same id left in its folder.
    Existing,
}

/// What a sandbox added to one mount point of its template: an overlay layer, ids as inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddedLayer {
    /// The mount point: the `target` of the template's overlay.
    pub target: PathBuf,
    pub directory: PathBuf,
}

/// A file in the folder of a sandbox that was only made to see whether this machine can: nobody's.
pub const TRIAL_MARK: &str = "trial";

/// For how long a prepared slot is kept whose reservation was neither used nor released. Longer than
/// any create waits for its turn.
pub const PREPARED_HOLDS: Duration = Duration::from_mins(3);

/// A sandbox that is to be made.
#[derive(Debug, Clone)]
pub struct NewSandbox<'a> {
    pub spec: &'a SandboxSpec,
    /// The build that the spec names.
    pub template: &'a Template,
    pub origin: Origin,
}

/// What becomes of a sandbox whose memory was written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterCheckpoint {
    GoOn,
    /// Its processes end; its disk stays.
    Stop,
}

/// Called once, as soon as there is something to find again.
pub type Started<'a> = dyn for<'r> Fn(&'r Running) -> Result<()> + Send + Sync + 'a;

/// One isolation tier. Every method is safe to call again after a crash of the caller.
#[async_trait]
pub trait Runtime: Send + Sync + fmt::Debug {
    fn tier(&self) -> Tier;

    /// The id of a prepared slot, kept for [`PREPARED_HOLDS`] for a `create` with that id. `None`:
    /// there is none, and any id is as good. Cheap: from memory.
    fn reserve(&self) -> Option<SandboxId> {
        None
    }

    /// No `create` with an id of [`Self::reserve`] will follow. Idempotent, and nothing happens to a
    /// slot that a `create` has. One that comes all the same is served, with a slot of its own.
    fn release(&self, _id: &SandboxId) {}

    /// Makes the sandbox and returns when envd accepts connections. On error nothing is left.
    /// [`crate::Error::InUse`], with nothing touched, when something of that id runs already, or its
    /// disk is mounted: two sandboxes on one disk would destroy it.
    /// `started` is called as soon as there is something to find again, before envd is ready;
    /// the node writes it to disk there.
    /// One of [`soulbox_types::Purpose::Warm`] yields to others ([`crate::Refill`]) until
    /// [`Self::set_limits`] is called for it.
    async fn create(&self, new: NewSandbox<'_>, started: &Started<'_>) -> Result<()>;

    /// Writes memory and disk of a running or paused sandbox, of the same moment, to a new folder. On
    /// error nothing is left of that and the sandbox goes on as it was.
    async fn checkpoint(
        &self,
        _id: &SandboxId,
        _target: &Path,
        _then: AfterCheckpoint,
    ) -> Result<()> {
        Err(self.unsupported("memory on disk"))
    }

    /// [`Self::create`] with the memory and disk of a checkpoint: its processes go on where they were.
    /// The copy has the identity of its own spec before anything in it runs.
    async fn restore(
        &self,
        _new: NewSandbox<'_>,
        _checkpoint: &Path,
        _started: &Started<'_>,
    ) -> Result<()> {
        Err(self.unsupported("memory on disk"))
    }

    fn unsupported(&self, what: &'static str) -> Error {
        Error::Unsupported {
            tier: self.tier(),
            what: what.into(),
        }
    }

    /// What works less well than it could, for the operator.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Gives back what it holds beside its sandboxes, which go on.
    async fn close(&self) {}

    /// Finds a sandbox that an earlier run of the node made.
    async fn adopt(&self, spec: &SandboxSpec, running: &Running) -> Result<Adopted>;

    /// Opens a connection to a port inside, also one bound to 127.0.0.1.
    async fn dial(&self, id: &SandboxId, port: u16) -> Result<DynStream>;

    /// Stops every process in place, memory kept; the files are on the host's disk afterwards.
    async fn pause(&self, id: &SandboxId) -> Result<()>;

    /// Stops every process in place and no more: for when a disk is too full to write anything.
    async fn hold(&self, id: &SandboxId) -> Result<()>;

    /// Lets the processes of a paused sandbox go on.
    async fn resume(&self, id: &SandboxId) -> Result<()>;

    /// Replaces what a running sandbox may reach, for new connections.
    async fn set_network(&self, id: &SandboxId, network: &NetworkPolicy) -> Result<()>;

    /// Ends every process and keeps the disk, with everything written so far safely on it. Also of
    /// one that has died, was stopped, or was left by a start that failed. On error either nothing
    /// has ended, or calling it again does the rest; after [`crate::Error::Timeout`] its processes
    /// are ending.
    async fn stop(&self, id: &SandboxId) -> Result<()>;

    /// Writes the disk of a running, paused or stopped sandbox, as it is at one moment, to a new
    /// file. The sandbox stands still only for as long as that needs. On error the file may be
    /// there in part; the sandbox goes on in any case.
    async fn capture(&self, id: &SandboxId, target: &Path) -> Result<()>;

    /// Ends every process of a sandbox without snapshots below it and writes what it added to its
    /// template, with whiteouts, to new directories below `target` (which is made): a layer per
    /// mount point to which anything was added. What is written is on the host's disk afterwards.
    async fn export(&self, id: &SandboxId, target: &Path) -> Result<Vec<AddedLayer>>;

    /// Changes what a sandbox may use, and gives it the cpu weight of a user's. Its disk keeps its
    /// size. Also of one that is being made: [`crate::Error::SandboxNotFound`] while there is nothing
    /// of it yet.
    async fn set_limits(&self, id: &SandboxId, limits: &Limits) -> Result<()>;

    async fn stats(&self, id: &SandboxId) -> Result<Stats>;

    /// What its sockets hold of the host's memory, which may be charged to nobody. Also of a paused
    /// one. `Unsupported`: its sockets are not the host kernel's.
    async fn socket_memory(&self, _id: &SandboxId) -> Result<SocketMemory> {
        Err(self.unsupported("the memory of its sockets"))
    }

    /// What it has written to files that is not on the host's disk yet. While it ends, that is what
    /// its end waits for. 0 where nobody knows.
    async fn unwritten_bytes(&self, _id: &SandboxId) -> u64 {
        0
    }

    /// Waits until the sandbox's first process is gone.
    async fn wait(&self, id: &SandboxId) -> Result<Exit>;

    /// Ends it and removes everything of it. Idempotent; works on half-made and half-destroyed
    /// ones, and after a restart with `running` from the state folder.
    async fn destroy(&self, id: &SandboxId, running: Option<&Running>) -> Result<()>;

    /// Ends what runs of a sandbox that cannot be adopted, and returns when its disk is whole and
    /// nothing has it mounted any more. Idempotent; fine when nothing runs.
    async fn put_away(&self, id: &SandboxId, running: Option<&Running>) -> Result<()> {
        self.destroy(id, running).await
    }

    /// Removes what earlier runs left and no sandbox in `keep` owns (pools, cgroups, rules).
    async fn reclaim(&self, keep: &[SandboxId]) -> Result<()>;
}
