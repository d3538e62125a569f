//! Moving the end of a sandbox.

use axum::extract::State;
use http::StatusCode;
use serde::Deserialize;

use crate::{
    router::App,
    shared::{
        auth::Caller,
        body::{Json as Body, OptionalJson},
        error::Result,
        path::SandboxPath,
    },
};

#[derive(Debug, Deserialize)]
pub(crate) struct TimeoutBody {
    timeout: i64,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct RefreshBody {
    duration: Option<i64>,
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
