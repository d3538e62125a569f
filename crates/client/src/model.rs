//! What the control plane says, as E2B names it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use soulbox_types::Secret;

pub mod templates;

/// A request for a sandbox. Fields left out take the server's defaults.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CreateSandbox {
    #[serde(rename = "templateID")]
    pub template: String,
    /// Seconds until the server ends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u32>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env_vars: BTreeMap<String, String>,
    #[serde(
        rename = "allow_internet_access",
        skip_serializing_if = "Option::is_none"
    )]
    pub allow_internet_access: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volume_mounts: Vec<VolumeMount>,
    #[serde(flatten)]
    pub resources: Resources,
}

/// A volume in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VolumeMount {
    pub name: String,
    pub path: String,
}

/// SoulBox's own addition to E2B's create: limits per sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// A size by name; what is said besides it counts more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_count: Option<u32>,
    #[serde(rename = "memoryMB", skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u32>,
    #[serde(rename = "diskSizeMB", skip_serializing_if = "Option::is_none")]
    pub disk_size_mb: Option<u32>,
}

/// A new or resumed sandbox.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sandbox {
    #[serde(rename = "sandboxID")]
    pub id: String,
    #[serde(rename = "templateID")]
    pub template: String,
    pub envd_version: String,
    #[serde(default)]
    pub alias: Option<String>,
    #[serde(default)]
    pub envd_access_token: Option<Secret>,
    #[serde(default)]
    pub domain: Option<String>,
}

/// A folder that outlives sandboxes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Volume {
    #[serde(rename = "volumeID")]
    pub id: String,
    pub name: String,
}

/// What takes room on the server's disk.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DiskUse {
    /// Whether what is everybody's is among them.
    pub operator: bool,
    pub items: Vec<DiskItem>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DiskItem {
    pub kind: String,
    pub count: u64,
    pub bytes: u64,
    /// What a prune frees of it.
    pub reclaimable: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pruned {
    pub freed: Vec<DiskItem>,
}

/// What the server tells of a secret: everything but its value.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredSecret {
    #[serde(rename = "secretID")]
    pub id: String,
    pub name: String,
    pub current_version: i64,
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    pub created_at: String,
    pub updated_at: String,
}

/// Something that happened to a sandbox. What we do not show is kept as it came.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SandboxEvent {
    pub id: String,
    #[serde(rename = "sandboxId")]
    pub sandbox: String,
    /// `created`, `paused`, `killed` and so on.
    #[serde(rename = "eventLabel")]
    pub label: String,
    #[serde(rename = "eventData", default)]
    pub data: serde_json::Value,
    /// RFC 3339.
    pub timestamp: String,
    #[serde(flatten)]
    pub rest: BTreeMap<String, serde_json::Value>,
}

/// The files of a sandbox at one moment. Used and deleted as a template is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Snapshot {
    #[serde(rename = "snapshotID")]
    pub id: String,
    #[serde(default)]
    pub names: Vec<String>,
}

/// A sandbox that is there and cannot be used; its files are kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BrokenSandbox {
    #[serde(rename = "sandboxID")]
    pub id: String,
    #[serde(rename = "templateID", default)]
    pub template: Option<String>,
    pub reason: String,
    /// When that was found.
    pub found_at: String,
    pub disk_bytes: u64,
    /// `repair`, `export` or `retry`.
    pub remedy: String,
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
}

/// A row of the list.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedSandbox {
    #[serde(rename = "sandboxID")]
    pub id: String,
    #[serde(rename = "templateID")]
    pub template: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// RFC 3339, as the next.
    pub started_at: String,
    pub end_at: String,
    pub cpu_count: u32,
    #[serde(rename = "memoryMB")]
    pub memory_mb: u32,
    #[serde(rename = "diskSizeMB")]
    pub disk_size_mb: u32,
    /// `running` or `paused`.
    pub state: String,
    pub envd_version: String,
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
}

/// One sandbox with what is needed to reach into it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxDetail {
    #[serde(flatten)]
    pub listed: ListedSandbox,
    #[serde(default)]
    pub envd_access_token: Option<Secret>,
    #[serde(default)]
    pub domain: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LogEntry {
    /// RFC 3339.
    pub timestamp: String,
    pub level: String,
    /// May hold bytes from inside the sandbox.
    pub message: String,
    #[serde(default)]
    pub fields: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metric {
    pub timestamp: String,
    pub timestamp_unix: i64,
    pub cpu_count: u32,
    pub cpu_used_pct: f64,
    pub mem_used: u64,
    pub mem_total: u64,
    #[serde(default)]
    pub mem_cache: u64,
    pub disk_used: u64,
    pub disk_total: u64,
    /// The most memory that it ever used, page cache included; where the server's kernel reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mem_peak: Option<u64>,
    /// How often something inside was killed for lack of memory.
    #[serde(default)]
    pub oom_kills: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiKey {
    pub id: String,
    pub name: String,
    pub mask: KeyMask,
    pub created_at: String,
    #[serde(default)]
    pub last_used: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyMask {
    pub prefix: String,
    pub value_length: u32,
    pub masked_value_prefix: String,
    pub masked_value_suffix: String,
}

impl KeyMask {
    /// `e2b_ab…cdef`
    pub fn display(&self) -> String {
        format!(
            "{}{}…{}",
            self.prefix, self.masked_value_prefix, self.masked_value_suffix
        )
    }
}

/// The only time that a key is shown.
#[derive(Debug, Clone, Deserialize)]
pub struct CreatedApiKey {
    pub id: String,
    pub name: String,
    pub key: Secret,
}
