//! `POST /sandboxes/{id}/fork`.

use axum::{Json, extract::State};
use http::{HeaderMap, StatusCode, Uri};
use serde::{Deserialize, Serialize};
use soulbox_control::Connected;
use soulbox_types::PauseMode;

use super::SandboxAnswer;
use crate::{
    e2b::{domain, error},
    router::App,
    shared::{
        answer::ErrorBody, auth::Caller, body::OptionalJson, error::Result, path::SandboxPath,
    },
};

const DEFAULT_SECONDS: i64 = 15;

#[derive(Debug, Default, Deserialize)]
pub(crate) struct ForkBody {
    timeout: Option<i64>,
    count: Option<i64>,
}

/// One of both.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Copy {
    Sandbox(Box<SandboxAnswer>),
    Error(ErrorBody),
}

pub(crate) async fn fork(
    State(app): State<App>,
    caller: Caller,
    SandboxPath(id): SandboxPath,
    uri: Uri,
    headers: HeaderMap,
    OptionalJson(body): OptionalJson<ForkBody>,
) -> Result<(StatusCode, Json<Vec<Copy>>)> {
    let timeout = body.timeout.unwrap_or(DEFAULT_SECONDS);
    let count = body.count.unwrap_or(1);
    let copies = app
        .control
        .fork(&caller.tenant, &id, count, timeout)
        .await?;
    let domain = domain::of_request(&uri, &headers, &app.config.domain);
    let copies = copies.into_iter().map(|copy| match copy {
        Ok(access) => {
            let restored = Some(PauseMode::Filesystem);
            let connected = Connected { access, restored };
            let answer = SandboxAnswer::connected(connected, domain.clone());
            Copy::Sandbox(Box::new(answer))
        }
        Err(error) => Copy::Error(error::body(&error.into())),
    });
    Ok((StatusCode::CREATED, Json(copies.collect())))
}
