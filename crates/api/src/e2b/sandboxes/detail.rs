//! `GET` and `DELETE /sandboxes/{id}`, and how a sandbox looks in lists.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Json, extract::State};
use http::{HeaderMap, StatusCode, Uri};
use serde::Serialize;
use soulbox_control::Sandbox;
use soulbox_types::{ENVD_VERSION, OnTimeout, PauseMode, SandboxState, VolumeMount};

use super::{Restored, network::NetworkDetail};
use crate::{
    e2b::domain,
    router::App,
    shared::{
        auth::Caller,
        error::Result,
        path::SandboxPath,
        wire::{CLIENT_ID, timestamp},
    },
};

/// E2B's `ListedSandbox`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Listed {
    #[serde(rename = "templateID")]
    template_id: String,
    #[serde(rename = "sandboxID")]
    sandbox_id: String,
    #[serde(rename = "clientID")]
    client_id: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    alias: Option<String>,
    started_at: String,
    end_at: String,
    cpu_count: u32,
    #[serde(rename = "memoryMB")]
    memory_mb: u32,
    #[serde(rename = "diskSizeMB")]
    disk_size_mb: u32,
    state: &'static str,
    envd_version: &'static str,
    metadata: BTreeMap<String, String>,
    volume_mounts: Vec<Mount>,
}

#[derive(Debug, Serialize)]
struct Mount {
    name: String,
    path: String,
}

impl From<VolumeMount> for Mount {
    fn from(mount: VolumeMount) -> Self {
        Self {
            name: mount.name,
            path: mount.path,
        }
    }
}

/// E2B's `SandboxDetail`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Detail {
    #[serde(flatten)]
    listed: Listed,
    #[serde(skip_serializing_if = "Option::is_none")]
    envd_access_token: Option<String>,
    /// `null`: never said.
    allow_internet_access: Option<bool>,
    domain: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<NetworkDetail>,
    lifecycle: Lifecycle,
    /// Only when it is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pause_mode: Option<&'static str>,
    /// What a resume brings back.
    #[serde(flatten)]
    restored: Option<Restored>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Lifecycle {
    auto_resume: bool,
    on_timeout: &'static str,
}

impl From<Sandbox> for Listed {
    fn from(sandbox: Sandbox) -> Self {
        let spec = Arc::unwrap_or_clone(sandbox.spec);
        Self {
            template_id: spec.template.into(),
            sandbox_id: spec.id.into(),
            client_id: CLIENT_ID,
            alias: spec.alias,
            started_at: timestamp(spec.created_at),
            end_at: timestamp(sandbox.paused.map_or(spec.deadline, |paused| paused.at)),
            cpu_count: spec.limits.cpu_count(),
            memory_mb: spec.limits.memory_mib,
            disk_size_mb: spec.limits.disk_mib,
            state: match sandbox.state {
                SandboxState::Paused => "paused",
                _ => "running",
            },
            envd_version: ENVD_VERSION,
            metadata: spec.metadata,
            volume_mounts: spec.volumes.into_iter().map(Mount::from).collect(),
        }
    }
}

pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    SandboxPath(id): SandboxPath,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<Detail>> {
    let sandbox = app.control.get(&caller.tenant, &id).await?;
    let token = sandbox.spec.access_token.as_ref();
    let kept = sandbox.paused.map(|paused| paused.kept);
    Ok(Json(Detail {
        envd_access_token: token.map(|token| token.expose().to_owned()),
        allow_internet_access: sandbox.spec.network.allow_internet,
        domain: domain::of_request(&uri, &headers, &app.config.domain),
        network: NetworkDetail::of(&sandbox.spec.network),
        lifecycle: Lifecycle {
            auto_resume: sandbox.spec.lifecycle.auto_resume,
            on_timeout: match sandbox.spec.lifecycle.on_timeout {
                OnTimeout::Kill => "kill",
                OnTimeout::Pause(_) => "pause",
            },
        },
        pause_mode: kept.map(|kept| match kept {
            PauseMode::Memory => "full",
            PauseMode::Filesystem => "filesystem",
        }),
        restored: kept.map(Restored::from),
        listed: sandbox.into(),
    }))
}

pub(crate) async fn kill(
    State(app): State<App>,
    caller: Caller,
    SandboxPath(id): SandboxPath,
) -> Result<StatusCode> {
    app.control.kill(&caller.tenant, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
