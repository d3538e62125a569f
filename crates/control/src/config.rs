use std::{num::NonZero, path::PathBuf, sync::Arc, thread::available_parallelism, time::Duration};

use soulbox_build::{Base, Builds, Step};
use soulbox_template::Templates;
use soulbox_types::{Limits, Secret, TemplateId, Tier, UnixMillis};
use soulbox_volume::Volumes;

use crate::WebhookConfig;

#[derive(Debug, Clone)]
pub struct ControlConfig {
    /// Key from which access tokens are derived, in hex.
    pub seed: Secret,
    /// The longest life of a sandbox.
    pub max_timeout: Duration,
    /// Of sandboxes for which nobody says which.
    pub default_tier: Tier,
    /// What a request cannot choose (`pids`) comes from here; the rest from the template.
    pub default_limits: Limits,
    pub max_sandboxes_per_tenant: u32,
    pub templates: Vec<TemplateInfo>,
    /// `None`: this server has no volumes.
    pub volumes: Option<Arc<Volumes>>,
    /// The size of a new volume.
    pub volume_limit_mib: u32,
    pub webhooks: WebhookConfig,
    /// `None`: this server builds no templates.
    pub builds: Option<BuildConfig>,
}

/// How templates are built.
#[derive(Debug, Clone)]
pub struct BuildConfig {
    pub builder: Arc<dyn Builds>,
    /// Where the builder keeps what it has built.
    pub templates: Arc<Templates>,
    /// A folder: one file per build. It is made when absent.
    pub logs: PathBuf,
    /// Builds at a time; others wait.
    pub parallel: usize,
    /// Builds that one tenant may have started and not finished.
    pub max_per_tenant: usize,
    /// The most that a template may ask for.
    pub max_limits: Limits,
    /// The longest that a build may run.
    pub max_duration: Duration,
    /// How long a create waits for a template of the server's own to be built: of clients that do
    /// not say how long they wait, and the most of those that do. `None`: as long as its client.
    pub patience: Option<Duration>,
    /// Templates that the server can build by itself, for everybody.
    pub builtins: Vec<BuiltIn>,
}

impl BuildConfig {
    /// As many builds at a time as there are cpus, and generous maxima: the machine is the
    /// operator's own.
    pub fn new(builder: Arc<dyn Builds>, templates: Arc<Templates>, logs: PathBuf) -> Self {
        Self {
            builder,
            templates,
            logs,
            parallel: available_parallelism().map_or(1, NonZero::get),
            max_per_tenant: 20,
            max_limits: Limits {
                cpu_millis: 32_000,
                memory_mib: 256 * 1024,
                disk_mib: 1024 * 1024,
                ..Limits::default()
            },
            max_duration: Duration::from_hours(2),
            patience: None,
            builtins: Vec::new(),
        }
    }
}

/// A template that the server builds when it is first wanted.
#[derive(Debug, Clone)]
pub struct BuiltIn {
    /// Without a namespace.
    pub name: String,
    /// Another one means another definition: it is built again.
    pub version: String,
    pub limits: Limits,
    pub base: Base,
    pub steps: Vec<Step>,
    /// Of its steps, what may be done at the same time: `soulbox_build::Stage`.
    pub lanes: Vec<Option<String>>,
    pub start: Option<String>,
    pub ready: Option<String>,
    /// About how long the base, each step and the end take: for those who wait.
    pub seconds: Vec<u32>,
}

/// A template that the server itself brings along. It has no owner.
#[derive(Debug, Clone)]
pub struct TemplateInfo {
    pub id: TemplateId,
    /// A UUID: E2B's clients refuse anything else.
    pub build_id: String,
    /// Names without a namespace; the first one is shown as the sandbox's `alias`.
    pub aliases: Vec<String>,
    pub limits: Limits,
    pub created_at: UnixMillis,
    /// Whether tenants may use it.
    pub public: bool,
}
