//! Everything needed to make a sandbox, and to adopt it after a restart.

use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{Limits, NetworkPolicy, SandboxId, Secret, TemplateId, TenantId, UnixMillis};

/// How strongly a sandbox is walled off. A request for a stronger tier is never served by a weaker one.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    Docker,
    #[default]
    Jail,
    Gvisor,
    Microvm,
}

impl Tier {
    /// From the weakest to the strongest.
    pub const ALL: [Self; 4] = [Self::Docker, Self::Jail, Self::Gvisor, Self::Microvm];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Jail => "jail",
            Self::Gvisor => "gvisor",
            Self::Microvm => "microvm",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is no tier's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a tier; there are docker, jail, gvisor and microvm")]
pub struct UnknownTier(String);

impl FromStr for Tier {
    type Err = UnknownTier;

    fn from_str(text: &str) -> Result<Self, UnknownTier> {
        let named = Self::ALL.into_iter().find(|tier| tier.as_str() == text);
        named.ok_or_else(|| UnknownTier(text.to_owned()))
    }
}

/// What is left of a sandbox when its processes stop: everything, or its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PauseMode {
    Memory,
    Filesystem,
}

impl PauseMode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Filesystem => "filesystem",
        }
    }
}

/// What happens when the deadline is reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnTimeout {
    #[default]
    Kill,
    Pause(PauseMode),
}

/// How a sandbox ends, pauses and resumes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifecycle {
    pub on_timeout: OnTimeout,
    /// Traffic wakes it when it is paused.
    pub auto_resume: bool,
    /// The life that it was created with, in seconds: traffic that wakes it gives as much again.
    pub timeout_seconds: u64,
}

/// For whom a sandbox runs. Only a user's is ever shown, or reached from outside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    #[default]
    User,
    /// A step of a template's build. It does not outlive the server that made it.
    Build,
    /// Started and ready, waiting for a user.
    Warm,
}

/// What runs in every sandbox of a template before its user comes, and how to tell that it is up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartCommand {
    /// Run by the default user's login shell in the default directory; empty: nothing is run.
    pub start: String,
    /// Run again and again until it succeeds.
    pub ready: String,
}

/// A volume in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeMount {
    /// UUID of the volume.
    pub volume: String,
    pub name: String,
    /// Absolute and clean path inside.
    pub path: String,
}

/// All that was asked for one sandbox. Written to its state folder before anything is made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SandboxSpec {
    pub id: SandboxId,
    pub tenant: TenantId,
    /// How it is walled off. Specs from before there was a choice have none: those are jails.
    #[serde(default)]
    pub tier: Tier,
    pub template: TemplateId,
    /// UUID of the build of that template. `None`: the template has only one, the server's own.
    #[serde(default)]
    pub build: Option<String>,
    #[serde(default)]
    pub purpose: Purpose,
    /// The snapshot that it starts from, above the template.
    #[serde(default)]
    pub snapshot: Option<TemplateId>,
    /// Shared folders that outlive it.
    #[serde(default)]
    pub volumes: Vec<VolumeMount>,
    /// First name of the template, as E2B's `alias`.
    pub alias: Option<String>,
    pub limits: Limits,
    pub env: BTreeMap<String, String>,
    pub metadata: BTreeMap<String, String>,
    pub network: NetworkPolicy,
    #[serde(default)]
    pub lifecycle: Lifecycle,
    /// What clients must show envd. `None`: an unsecured sandbox (v1 API with `secure: false`).
    pub access_token: Option<Secret>,
    /// What clients must show for ports other than envd's. `None`: nothing.
    #[serde(default)]
    pub traffic_token: Option<Secret>,
    /// What the node shows envd on control routes. Never leaves the node.
    pub node_token: Secret,
    pub created_at: UnixMillis,
    /// When the node ends it, unless moved.
    pub deadline: UnixMillis,
}

impl SandboxSpec {
    /// A user's sandbox from now on for `life`, under a random id, with the usual limits and nothing
    /// special about it. Without an access token it is open to whoever can reach it.
    pub fn new(tenant: TenantId, template: TemplateId, life: Duration) -> Self {
        let now = UnixMillis::now();
        Self {
            id: SandboxId::random(),
            tenant,
            tier: Tier::default(),
            template,
            build: None,
            purpose: Purpose::User,
            snapshot: None,
            volumes: Vec::new(),
            alias: None,
            limits: Limits::default(),
            env: BTreeMap::new(),
            metadata: BTreeMap::new(),
            network: NetworkPolicy::default(),
            lifecycle: Lifecycle::default(),
            access_token: None,
            traffic_token: None,
            node_token: Secret::random(),
            created_at: now,
            deadline: now.plus(life),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SandboxState {
    Creating,
    Running,
    Paused,
    Destroying,
}

/// Why a sandbox ended: users ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// Asked for through the API.
    Killed,
    /// Its time was over.
    Expired,
    /// envd or the whole sandbox died on its own.
    Died,
    /// The server ended it to protect the machine: it took more than it may.
    Evicted,
    /// It never came up.
    CreateFailed,
    /// The machine was restarted, or the state folder could not be adopted.
    Lost,
}

impl EndReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Expired => "expired",
            Self::Died => "died",
            Self::Evicted => "evicted",
            Self::CreateFailed => "create_failed",
            Self::Lost => "lost",
        }
    }
}
