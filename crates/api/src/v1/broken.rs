//! Sandboxes that cannot be used: SoulBox's own routes below `/v1/broken`.

use std::collections::BTreeMap;

use axum::{
    Json,
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{StatusCode, header};
use serde::Serialize;
use soulbox_control::BrokenSandbox;

use crate::{
    e2b::sandboxes::detail::Listed,
    router::App,
    shared::{auth::Caller, error::Result, path::SandboxPath, wire::timestamp},
};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Shown {
    #[serde(rename = "sandboxID")]
    sandbox_id: String,
    #[serde(rename = "templateID")]
    template_id: String,
    reason: String,
    found_at: String,
    disk_bytes: u64,
    remedy: &'static str,
    metadata: BTreeMap<String, String>,
}

impl From<BrokenSandbox> for Shown {
    fn from(each: BrokenSandbox) -> Self {
        Self {
            remedy: each.remedy(),
            sandbox_id: each.broken.id.into(),
            template_id: each.template,
            reason: each.broken.reason,
            found_at: timestamp(each.broken.at),
            disk_bytes: each.broken.disk_bytes,
            metadata: each.metadata,
        }
    }
}

pub(crate) async fn list(State(app): State<App>, caller: Caller) -> Result<Json<Vec<Shown>>> {
    let broken = app.control.broken(&caller.tenant).await?;
    Ok(Json(broken.into_iter().map(Shown::from).collect()))
}

pub(crate) async fn recover(
    State(app): State<App>,
    caller: Caller,
    SandboxPath(id): SandboxPath,
) -> Result<Json<Listed>> {
    let sandbox = app.control.recover(&caller.tenant, &id).await?;
    Ok(Json(sandbox.into()))
}

/// The image as it is, in the chunks of [`soulbox_runtime::DiskStream`]: nobody here looks into it.
pub(crate) async fn disk(
    State(app): State<App>,
    caller: Caller,
    SandboxPath(id): SandboxPath,
) -> Result<Response> {
    let disk = app.control.broken_disk(&caller.tenant, &id).await?;
    let headers = [(header::CONTENT_TYPE, "application/octet-stream")];
    Ok((headers, Body::from_stream(disk)).into_response())
}

pub(crate) async fn discard(
    State(app): State<App>,
    caller: Caller,
    SandboxPath(id): SandboxPath,
) -> Result<StatusCode> {
    app.control.discard(&caller.tenant, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
