//! Sandboxes: `/sandboxes` and `/v2/sandboxes`.

pub(crate) mod create;
pub(crate) mod detail;
mod features;
pub(crate) mod fork;
pub(crate) mod lifecycle;
pub(crate) mod list;
pub(crate) mod logs;
mod mcp;
mod metadata_filter;
pub(crate) mod metrics;
pub(crate) mod network;
mod patience;
pub(crate) mod pause;

use serde::Serialize;
use soulbox_control::{Access, Connected};
use soulbox_types::{ENVD_VERSION, PauseMode};

use crate::shared::wire::CLIENT_ID;

/// E2B's `Sandbox`: what a client needs to use one.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SandboxAnswer {
    #[serde(rename = "templateID")]
    template_id: String,
    #[serde(rename = "sandboxID")]
    sandbox_id: String,
    #[serde(rename = "clientID")]
    client_id: &'static str,
    envd_version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    alias: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    envd_access_token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traffic_access_token: Option<String>,
    domain: String,
    #[serde(flatten)]
    restored: Option<Restored>,
}

/// Ours: what is left of a sandbox that is or was paused.
#[derive(Debug, Serialize)]
pub(crate) struct Restored {
    /// `memory` or `filesystem`.
    restored: &'static str,
    /// Where it is kept: this machine's disk and memory.
    durable: &'static str,
}

impl From<PauseMode> for Restored {
    fn from(kept: PauseMode) -> Self {
        Self {
            restored: kept.as_str(),
            durable: "local",
        }
    }
}

impl SandboxAnswer {
    pub(crate) fn new(access: Access, domain: String) -> Self {
        Self {
            template_id: access.template.into(),
            sandbox_id: access.id.into(),
            client_id: CLIENT_ID,
            envd_version: ENVD_VERSION,
            alias: access.alias,
            envd_access_token: access.access_token.map(|token| token.expose().to_owned()),
            traffic_access_token: access.traffic_token.map(|token| token.expose().to_owned()),
            domain,
            restored: None,
        }
    }

    pub(crate) fn connected(connected: Connected, domain: String) -> Self {
        Self {
            restored: connected.restored.map(Restored::from),
            ..Self::new(connected.access, domain)
        }
    }
}
