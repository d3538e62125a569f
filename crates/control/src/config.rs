use std::{sync::Arc, time::Duration};

use soulbox_types::{Limits, Secret, TemplateId, UnixMillis};
use soulbox_volume::Volumes;

use crate::WebhookConfig;

#[derive(Debug, Clone)]
pub struct ControlConfig {
    /// Key from which access tokens are derived, in hex.
    pub seed: Secret,
    /// The longest life of a sandbox.
    pub max_timeout: Duration,
    /// What a request cannot choose (`pids`) comes from here; the rest from the template.
    pub default_limits: Limits,
    pub max_sandboxes_per_tenant: u32,
    pub templates: Vec<TemplateInfo>,
    /// `None`: this server has no volumes.
    pub volumes: Option<Arc<Volumes>>,
    /// The size of a new volume.
    pub volume_limit_mib: u32,
    pub webhooks: WebhookConfig,
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
