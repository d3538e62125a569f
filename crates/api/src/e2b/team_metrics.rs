//! `/teams/{id}/metrics` and `/teams/{id}/metrics/max`.

use axum::{Json, extract::State};
use serde::Serialize;
use soulbox_control::{ErrorCode, TeamMetric};
use soulbox_types::UnixMillis;

use crate::{
    router::App,
    shared::{
        auth::Caller,
        error::{ApiError, Result},
        path::Segment,
        query::Query,
        wire::timestamp,
    },
};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sample {
    timestamp: String,
    timestamp_unix: u64,
    concurrent_sandboxes: u64,
    sandbox_start_rate: f64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Maximum {
    timestamp: String,
    timestamp_unix: u64,
    value: f64,
}

pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    Segment(team): Segment<String>,
    query: Query,
) -> Result<Json<Vec<Sample>>> {
    own(&caller, &team)?;
    let (start, end) = window(&query)?;
    let samples = app.control.team_metrics(&caller.tenant, start, end).await?;
    let shown = samples.into_iter().map(|sample| Sample {
        timestamp: timestamp(sample.at),
        timestamp_unix: sample.at.0 / 1000,
        concurrent_sandboxes: sample.concurrent,
        sandbox_start_rate: sample.start_rate,
    });
    Ok(Json(shown.collect()))
}

pub(crate) async fn max(
    State(app): State<App>,
    caller: Caller,
    Segment(team): Segment<String>,
    query: Query,
) -> Result<Json<Maximum>> {
    own(&caller, &team)?;
    let (start, end) = window(&query)?;
    let metric = match query.text("metric") {
        Some("concurrent_sandboxes") => TeamMetric::Concurrent,
        Some("sandbox_start_rate") => TeamMetric::StartRate,
        _ => {
            let message = "metric must be concurrent_sandboxes or sandbox_start_rate";
            return Err(ApiError::bad_request(message));
        }
    };
    let highest = app.control.team_maximum(&caller.tenant, start, end, metric);
    let (at, value) = highest.await?;
    Ok(Json(Maximum {
        timestamp: timestamp(at),
        timestamp_unix: at.0 / 1000,
        value,
    }))
}

/// A key sees its own team.
fn own(caller: &Caller, team: &str) -> Result<()> {
    if caller.tenant.id.as_str() == team {
        Ok(())
    } else {
        let message = "you don't have access to this team";
        Err(ApiError::new(ErrorCode::AccessDenied, message))
    }
}

/// In whole seconds since 1970.
fn window(query: &Query) -> Result<(Option<UnixMillis>, Option<UnixMillis>)> {
    let at = |name| -> Result<_> {
        let seconds: Option<u64> = query.number(name)?;
        Ok(seconds.map(|seconds| UnixMillis(seconds.saturating_mul(1000))))
    };
    Ok((at("start")?, at("end")?))
}
