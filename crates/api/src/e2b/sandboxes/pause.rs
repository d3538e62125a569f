//! Pausing a sandbox, connecting to one and waking one.

use axum::{Json, extract::State};
use http::{HeaderMap, StatusCode, Uri};
use serde::Deserialize;
use soulbox_control::Connected;
use soulbox_types::{OnTimeout, PauseMode};

use super::SandboxAnswer;
use crate::{
    e2b::domain,
    router::App,
    shared::{
        auth::Caller,
        body::OptionalJson,
        error::{ApiError, Result},
        path::SandboxPath,
    },
};

const DEFAULT_CONNECT_SECONDS: i64 = 300;
const DEFAULT_RESUME_SECONDS: i64 = 15;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PauseBody {
    memory: Option<bool>,
    require_healthy_guest: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct ConnectBody {
    timeout: Option<i64>,
    memory: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ResumeBody {
    timeout: Option<i64>,
    memory: Option<bool>,
    auto_pause: Option<bool>,
}

pub(crate) async fn pause(
    State(app): State<App>,
    caller: Caller,
    SandboxPath(id): SandboxPath,
    OptionalJson(body): OptionalJson<PauseBody>,
) -> Result<StatusCode> {
    let only_healthy = body.require_healthy_guest.unwrap_or(false);
    app.control
        .pause(&caller.tenant, &id, kept(body.memory), only_healthy)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn connect_v1(
    State(app): State<App>,
    caller: Caller,
    SandboxPath(id): SandboxPath,
    uri: Uri,
    headers: HeaderMap,
    OptionalJson(body): OptionalJson<ConnectBody>,
) -> Result<(StatusCode, Json<SandboxAnswer>)> {
    let timeout = body
        .timeout
        .ok_or_else(|| ApiError::bad_request("timeout is required"))?;
    let want = kept(body.memory);
    let connected = app
        .control
        .connect(&caller.tenant, &id, timeout, want)
        .await?;
    Ok(answer(&app, &uri, &headers, connected))
}

pub(crate) async fn connect_v2(
    State(app): State<App>,
    caller: Caller,
    SandboxPath(id): SandboxPath,
    uri: Uri,
    headers: HeaderMap,
    OptionalJson(body): OptionalJson<ConnectBody>,
) -> Result<(StatusCode, Json<SandboxAnswer>)> {
    let timeout = body.timeout.unwrap_or(DEFAULT_CONNECT_SECONDS);
    let want = kept(body.memory);
    let connected = app
        .control
        .connect(&caller.tenant, &id, timeout, want)
        .await?;
    Ok(answer(&app, &uri, &headers, connected))
}

pub(crate) async fn resume(
    State(app): State<App>,
    caller: Caller,
    SandboxPath(id): SandboxPath,
    uri: Uri,
    headers: HeaderMap,
    OptionalJson(body): OptionalJson<ResumeBody>,
) -> Result<(StatusCode, Json<SandboxAnswer>)> {
    if let Some(asked) = body.auto_pause {
        let sandbox = app.control.get(&caller.tenant, &id).await?;
        let pauses = matches!(sandbox.spec.lifecycle.on_timeout, OnTimeout::Pause(_));
        if asked != pauses {
            return Err(ApiError::not_supported(
                "changing autoPause with a resume",
                "leave it out, and choose it when you create the sandbox",
            ));
        }
    }
    let timeout = body.timeout.unwrap_or(DEFAULT_RESUME_SECONDS);
    let want = kept(body.memory);
    let connected = app
        .control
        .resume(&caller.tenant, &id, timeout, want)
        .await?;
    Ok(answer(&app, &uri, &headers, connected))
}

/// 200 for one that was running, 201 for one that was woken.
fn answer(
    app: &App,
    uri: &Uri,
    headers: &HeaderMap,
    connected: Connected,
) -> (StatusCode, Json<SandboxAnswer>) {
    let status = match connected.restored {
        None => StatusCode::OK,
        Some(_) => StatusCode::CREATED,
    };
    let domain = domain::of_request(uri, headers, &app.config.domain);
    (status, Json(SandboxAnswer::connected(connected, domain)))
}

fn kept(memory: Option<bool>) -> PauseMode {
    match memory {
        None | Some(true) => PauseMode::Memory,
        Some(false) => PauseMode::Filesystem,
    }
}
