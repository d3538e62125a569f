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
