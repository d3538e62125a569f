//! How a build is doing: `…/status` and `…/logs`.

use axum::{Json, extract::State};
use serde::Serialize;
use soulbox_control::{BuildInfo, BuildLogEntry, BuildLogPage, BuildReason, Error as ControlError};
use soulbox_runtime::LogLevel;
use soulbox_types::UnixMillis;

use super::check_build_id;
use crate::{
    e2b::templates::find,
    router::App,
    shared::{
        auth::Caller,
        error::{ApiError, Result},
        path::Segment,
        query::Query,
        wire::timestamp,
    },
};

const MAX_LIMIT: usize = 100;

/// E2B's `TemplateBuildInfo`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Progress {
    #[serde(rename = "templateID")]
    template_id: String,
    #[serde(rename = "buildID")]
    build_id: String,
    status: &'static str,
    /// Those of the build system before this one.
    logs: [(); 0],
    log_entries: Vec<Entry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Logs {
    logs: Vec<Entry>,
}

#[derive(Debug, Serialize)]
struct Entry {
    timestamp: String,
    message: String,
    level: LogLevel,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<String>,
}

#[derive(Debug, Serialize)]
struct Reason {
    message: String,
    step: String,
}

pub(crate) async fn status(
    State(app): State<App>,
    caller: Caller,
    Segment((template, build)): Segment<(String, String)>,
    query: Query,
) -> Result<Json<Progress>> {
    let page = BuildLogPage::FromIndex {
        index: query.number("logsOffset")?.unwrap_or_default(),
        limit: limit(&query)?,
    };
    let level = level(&query)?;
    let (info, log_entries) = read(&app, &caller, &template, &build, page, level).await?;
    Ok(Json(match info {
        Seen::Built(info) => Progress {
            template_id: info.template.into(),
            build_id: info.row.id,
            status: info.row.status.as_str(),
            logs: [],
            log_entries,
            reason: info.row.reason.map(Reason::from),
        },
        Seen::Given { template_id } => Progress {
            template_id,
            build_id: build,
            status: "ready",
            logs: [],
            log_entries,
            reason: None,
        },
    }))
}

/// By time, in either direction.
pub(crate) async fn logs(
    State(app): State<App>,
    caller: Caller,
    Segment((template, build)): Segment<(String, String)>,
    query: Query,
) -> Result<Json<Logs>> {
    let (cursor, limit) = (query.number("cursor")?.map(UnixMillis), limit(&query)?);
    let page = match query.text("direction") {
        None | Some("forward") => BuildLogPage::Forward {
            from: cursor,
            limit,
        },
        Some("backward") => BuildLogPage::Backward {
            before: cursor,
            limit,
        },
        Some(_) => {
            return Err(ApiError::bad_request(
                "direction must be forward or backward",
            ));
        }
    };
    if !matches!(
        query.text("source"),
        None | Some("temporary" | "persistent")
    ) {
        return Err(ApiError::bad_request(
            "source must be temporary or persistent",
        ));
    }
    let level = level(&query)?;
    let (_, logs) = read(&app, &caller, &template, &build, page, level).await?;
    Ok(Json(Logs { logs }))
}

enum Seen {
    Built(Box<BuildInfo>),
    /// `base`, or a snapshot: nothing was built, and there is nothing to log.
    Given {
        template_id: String,
    },
}

async fn read(
    app: &App,
    caller: &Caller,
    template: &str,
    build: &str,
    page: BuildLogPage,
    level: LogLevel,
) -> Result<(Seen, Vec<Entry>)> {
    check_build_id(build)?;
    // The state before the log: once it is final, the log is whole.
    match app.control.build(&caller.tenant, template, build) {
        Ok(info) => {
            let entries = app.control.build_log(&info, page, level).await?;
            let entries = entries.into_iter().map(Entry::from).collect();
            Ok((Seen::Built(Box::new(info)), entries))
        }
        Err(error @ ControlError::BuildNotFound(_)) => {
            let found = find(app, caller, template)?;
            if found.builds.iter().all(|own| own.id != build) {
                return Err(error.into());
            }
            let template_id = found.info.id.into();
            Ok((Seen::Given { template_id }, Vec::new()))
        }
        Err(error) => Err(error.into()),
    }
}

fn limit(query: &Query) -> Result<usize> {
    let limit = query.number("limit")?.unwrap_or(MAX_LIMIT);
    if limit > MAX_LIMIT {
        let message = format!("limit must be between 0 and {MAX_LIMIT}");
        return Err(ApiError::bad_request(message));
    }
    Ok(limit)
}

fn level(query: &Query) -> Result<LogLevel> {
    match query.text("level") {
        None | Some("debug") => Ok(LogLevel::Debug),
        Some("info") => Ok(LogLevel::Info),
        Some("warn") => Ok(LogLevel::Warn),
        Some("error") => Ok(LogLevel::Error),
        Some(_) => Err(ApiError::bad_request(
            "level must be debug, info, warn or error",
        )),
    }
}

impl From<BuildLogEntry> for Entry {
    fn from(entry: BuildLogEntry) -> Self {
        Self {
            timestamp: timestamp(entry.at),
            message: entry.message,
            level: entry.level,
            step: entry.step,
        }
    }
}

impl From<BuildReason> for Reason {
    fn from(reason: BuildReason) -> Self {
        Self {
            message: reason.message,
            step: reason.step,
        }
    }
}
