//! Building templates: `/v3/templates`, files, start, status, logs, and our own cancel and built-ins.

mod ask;
mod files;
mod progress;
mod start;

use axum::{Json, extract::State};
use http::StatusCode;
use serde::Serialize;
use uuid::Uuid;

use crate::{
    router::App,
    shared::{
        auth::Caller,
        error::{ApiError, Result},
        path::Segment,
    },
};

pub(crate) use self::{
    ask::ask,
    files::{link, upload},
    progress::{logs, status},
    start::start,
};

#[derive(Debug, Serialize)]
pub(crate) struct Started {
    #[serde(rename = "templateID")]
    template_id: String,
    #[serde(rename = "buildID")]
    build_id: String,
}

/// Ours. A build that has ended already is a conflict.
pub(crate) async fn cancel(
    State(app): State<App>,
    caller: Caller,
    Segment((template, build)): Segment<(String, String)>,
) -> Result<StatusCode> {
    check_build_id(&build)?;
    app.control
        .cancel_build(&caller.tenant, &template, &build)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Ours. Answers the build that is under way or done, if there is one.
pub(crate) async fn builtin(
    State(app): State<App>,
    _: Caller,
    Segment(name): Segment<String>,
) -> Result<(StatusCode, Json<Started>)> {
    let build = app.control.build_builtin(&name).await?;
    let started = Started {
        template_id: build.template.into(),
        build_id: build.row.id,
    };
    Ok((StatusCode::ACCEPTED, Json(started)))
}

pub(crate) fn check_build_id(build: &str) -> Result<()> {
    if Uuid::try_parse(build).is_err() {
        return Err(ApiError::bad_request("Invalid build ID"));
    }
    Ok(())
}
