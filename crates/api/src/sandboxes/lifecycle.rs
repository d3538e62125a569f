//! Connecting to a sandbox and moving its end.

use axum::{Json, extract::State};
use http::{HeaderMap, StatusCode, Uri};
use serde::Deserialize;
use soulbox_control::Error as ControlError;
use soulbox_types::SandboxId;

use super::SandboxAnswer;
use crate::{
    auth::Caller,
    body::{Json as Body, OptionalJson},
    domain,
    error::{ApiError, Result},
    path::SandboxPath,
    router::App,
};

const DEFAULT_CONNECT_SECONDS: i64 = 300;

/// `memory` only says how a paused sandbox wakes, and there are none.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct ConnectBody {
    timeout: Option<i64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct TimeoutBody {
    timeout: i64,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct RefreshBody {
    duration: Option<i64>,
}

pub(crate) async fn connect_v1(
    State(app): State<App>,
    caller: Caller,
    SandboxPath(id): SandboxPath,
    uri: Uri,
    headers: HeaderMap,
    OptionalJson(body): OptionalJson<ConnectBody>,
) -> Result<Json<SandboxAnswer>> {
    let timeout = body
        .timeout
        .ok_or_else(|| ApiError::bad_request("timeout is required"))?;
    connect(&app, &caller, &id, timeout, &uri, &headers).await
}

pub(crate) async fn connect_v2(
    State(app): State<App>,
    caller: Caller,
    SandboxPath(id): SandboxPath,
    uri: Uri,
    headers: HeaderMap,
    OptionalJson(body): OptionalJson<ConnectBody>,
) -> Result<Json<SandboxAnswer>> {
    let timeout = body.timeout.unwrap_or(DEFAULT_CONNECT_SECONDS);
    connect(&app, &caller, &id, timeout, &uri, &headers).await
}

async fn connect(
    app: &App,
    caller: &Caller,
    id: &SandboxId,
    timeout: i64,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Json<SandboxAnswer>> {
    let access = app.control.connect(&caller.tenant, id, timeout).await?;
    let domain = domain::of_request(uri, headers, &app.config.domain);
    Ok(Json(SandboxAnswer::new(access, domain)))
}

/// Wakes a paused sandbox. Nothing can be paused yet, so every sandbox that exists is running.
pub(crate) async fn resume(
    State(app): State<App>,
    caller: Caller,
    SandboxPath(id): SandboxPath,
) -> Result<StatusCode> {
    app.control.get(&caller.tenant, &id).await?;
    Err(ControlError::AlreadyRunning { id }.into())
}

pub(crate) async fn timeout(
    State(app): State<App>,
    caller: Caller,
    SandboxPath(id): SandboxPath,
    Body(body): Body<TimeoutBody>,
) -> Result<StatusCode> {
    app.control
        .set_timeout(&caller.tenant, &id, body.timeout)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn refresh(
    State(app): State<App>,
    caller: Caller,
    SandboxPath(id): SandboxPath,
    OptionalJson(body): OptionalJson<RefreshBody>,
) -> Result<StatusCode> {
    app.control
        .refresh(&caller.tenant, &id, body.duration.unwrap_or_default())
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
