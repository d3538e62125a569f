//! What the node hands to the programs that it starts for a sandbox.
//!
//! Both structs travel as one JSON document over a pipe, never through the command line or the
//! environment, where other processes could read them.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::Secret;

/// File descriptor on which `soulbox-envd` finds its [`EnvdConfig`] (JSON until end of file).
pub const CONFIG_FD: i32 = 3;
/// File descriptor to which `soulbox-envd` writes one `\n` when it accepts connections.
pub const READY_FD: i32 = 4;

/// How many terminals a sandbox may have open. The kernel has a number for all together.
pub const TERMINALS: u32 = 64;

/// How envd starts. Changed later through `POST /init` with the node token.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EnvdConfig {
    pub sandbox_id: String,
    pub template_id: String,
    pub access_token: Option<Secret>,
    pub node_token: Secret,
    /// Global environment: the template's, then the caller's.
    pub env: BTreeMap<String, String>,
    pub default_user: String,
    /// Empty: the default user's home.
    pub default_workdir: String,
    /// What `/metrics` reports as the totals.
    pub memory_bytes: u64,
    pub cpu_count: u32,
    pub disk_bytes: u64,
}

/// A layer of the root file system, lowest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverlaySpec {
    /// Where it is mounted in the sandbox: `/` or, for the host template, `/usr` and `/opt`.
    pub target: PathBuf,
    /// Read-only directories on the host, topmost first; owned by ids 0.. there and idmapped.
    pub lower: Vec<PathBuf>,
}

/// The first line of `soulbox-init`'s standard input: what is the same for whatever sandbox it
/// will become, and takes the kernel longest. It is done ahead, then [`InitStatus::Waiting`] is
/// reported and the [`InitSpec`] awaited. Without one it ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PreparedSpec {
    /// Where the network namespace can be opened (`/proc/<server>/fd/<n>`).
    pub network_namespace: PathBuf,
    /// First of the 65,536 host ids that are this sandbox's 0 to 65,535.
    pub id_base: u32,
    /// Files into which a process writes its pid to join the sandbox's cgroups.
    pub cgroup_joins: Vec<PathBuf>,
}

/// Everything else that `soulbox-init` needs to build a jail, up to the end of standard input.
/// What happened goes as JSON lines ([`InitStatus`]) to standard output, followed by envd's ready
/// byte.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InitSpec {
    /// As in the prepared slot.
    pub id_base: u32,
    pub hostname: String,
    /// Directories to show read-only under `/sys/fs/cgroup`, with their place there.
    pub cgroup_view: Vec<(PathBuf, PathBuf)>,
    /// Ext4 image with `u<n>` (upper) and `w<n>` (work) for the n-th overlay.
    pub disk: PathBuf,
    /// Images of the snapshots that it stands on, topmost first.
    pub snapshots: Vec<PathBuf>,
    /// Directories on the host with natural ids, and where they appear inside.
    pub volumes: Vec<(PathBuf, PathBuf)>,
    pub overlays: Vec<OverlaySpec>,
    /// An empty directory: where the new root is put together, seen by nobody else.
    pub staging: PathBuf,
    /// Of `/dev/shm` and `/run` together.
    pub tmpfs_bytes: u64,
    /// The seccomp program in hex.
    pub seccomp: String,
    /// Numbers of the capabilities that stay in the bounding set.
    pub capabilities: Vec<u8>,
    /// Paths below `/proc` and `/sys` that are hidden.
    pub masked: Vec<PathBuf>,
    /// Paths below `/proc` that are made read-only.
    pub read_only: Vec<PathBuf>,
    pub envd: PathBuf,
    pub envd_config: EnvdConfig,
}

/// The argument with which `soulbox-init` starts others like itself when it is asked to, on the
/// socket that is its standard input.
pub const FORK_SERVER: &str = "fork-server";

/// The argument with which `soulbox-init` copies layers out of a disk instead of making a jail.
pub const EXPORT: &str = "export";

/// What that needs, on standard input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportSpec {
    /// The image of a sandbox without processes.
    pub disk: PathBuf,
    /// How many overlays its template has.
    pub overlays: usize,
    /// A directory to make: `<n>` in it gets what was added to the n-th overlay.
    pub target: PathBuf,
}

/// What `soulbox-init` reports, one JSON object per line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InitStatus {
    /// The slot is prepared.
    Waiting,
    /// The sandbox's first process exists.
    Started {
        pid: i32,
        /// The kernel's name of the device that its disk is on.
        disk: String,
    },
    /// The overlays to which anything was added; their copies are on the host's disk.
    Exported { overlays: Vec<usize> },
    /// Nothing was left running.
    Failed { step: String, message: String },
}
