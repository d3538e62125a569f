//! `GET /sandboxes/{id}/logs` and `GET /v2/sandboxes/{id}/logs`.

use std::{collections::BTreeMap, time::Duration};

use axum::{Json, extract::State};
use serde::Serialize;
use serde_json::{Map, Value};
use soulbox_runtime::{LogEntry, LogLevel};
use soulbox_types::UnixMillis;

use crate::{
    router::App,
    shared::{
        auth::Caller,
        error::{ApiError, Result},
        path::SandboxPath,
        query::Query,
        wire::timestamp,
    },
};

const MAX_LIMIT: usize = 1000;
const MAX_SEARCH_CHARS: usize = 256;
const WINDOW: Duration = Duration::from_hours(7 * 24);

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LogsV1 {
    logs: Vec<Line>,
    log_entries: Vec<Entry>,
}

#[derive(Debug, Serialize)]
pub(crate) struct LogsV2 {
    logs: Vec<Entry>,
}

/// `line` is itself JSON with a `level`: `e2b sandbox logs` parses it.
#[derive(Debug, Serialize)]
struct Line {
    timestamp: String,
    line: String,
}

#[derive(Debug, Serialize)]
struct Entry {
    timestamp: String,
    message: String,
    level: LogLevel,
    fields: BTreeMap<String, String>,
}

/// From `start` (milliseconds) on, oldest first.
pub(crate) async fn v1(
    State(app): State<App>,
    caller: Caller,
    SandboxPath(id): SandboxPath,
    query: Query,
) -> Result<Json<LogsV1>> {
    let start = UnixMillis(query.number("start")?.unwrap_or_default());
    let limit: usize = query.number("limit")?.unwrap_or(MAX_LIMIT);
    let mut entries = app.control.logs(&caller.tenant, &id).await?;
    entries.retain(|entry| entry.at >= start);
    entries.truncate(limit);
    Ok(Json(LogsV1 {
        logs: entries.iter().map(Line::from).collect(),
        log_entries: entries.into_iter().map(Entry::from).collect(),
    }))
}

pub(crate) async fn v2(
    State(app): State<App>,
    caller: Caller,
    SandboxPath(id): SandboxPath,
    query: Query,
) -> Result<Json<LogsV2>> {
    let filter = Filter::from_query(&query)?;
    let entries = app.control.logs(&caller.tenant, &id).await?;
    let logs = filter.apply(entries).into_iter().map(Entry::from).collect();
    Ok(Json(LogsV2 { logs }))
}

struct Filter {
    cursor: Option<UnixMillis>,
    limit: usize,
    backward: bool,
    level: LogLevel,
    search: String,
}

impl Filter {
    fn from_query(query: &Query) -> Result<Self> {
        let limit = query.number("limit")?.unwrap_or(MAX_LIMIT);
        if limit > MAX_LIMIT {
            let message = format!("limit must be between 0 and {MAX_LIMIT}");
            return Err(ApiError::bad_request(message));
        }
        let backward = match query.text("direction") {
            None | Some("backward") => true,
            Some("forward") => false,
            Some(_) => {
                return Err(ApiError::bad_request(
                    "direction must be forward or backward",
                ));
            }
        };
        let level = match query.text("level") {
            None | Some("debug") => LogLevel::Debug,
            Some("info") => LogLevel::Info,
            Some("warn") => LogLevel::Warn,
            Some("error") => LogLevel::Error,
            Some(_) => {
                return Err(ApiError::bad_request(
                    "level must be debug, info, warn or error",
                ));
            }
        };
        let search = query.text("search").unwrap_or_default().to_owned();
        if search.chars().count() > MAX_SEARCH_CHARS {
            let message = format!("search has at most {MAX_SEARCH_CHARS} characters");
            return Err(ApiError::bad_request(message));
        }
        let cursor = query.number("cursor")?.map(UnixMillis);
        Ok(Self {
            cursor,
            limit,
            backward,
            level,
            search,
        })
    }

    /// Forward begins at the cursor; backward ends before it, so that a page's last time is the
    /// next page's cursor.
    fn apply(&self, mut entries: Vec<LogEntry>) -> Vec<LogEntry> {
        let window = u64::try_from(WINDOW.as_millis()).unwrap_or(u64::MAX);
        let oldest = UnixMillis(UnixMillis::now().0.saturating_sub(window));
        entries.retain(|entry| {
            let placed = match self.cursor {
                None => true,
                Some(cursor) if self.backward => entry.at < cursor,
                Some(cursor) => entry.at >= cursor,
            };
            placed
                && entry.at >= oldest
                && entry.level >= self.level
                && entry.message.contains(&self.search)
        });
        if self.backward {
            entries.reverse();
        }
        entries.truncate(self.limit);
        entries
    }
}

impl From<&LogEntry> for Line {
    fn from(entry: &LogEntry) -> Self {
        let fields = entry
            .fields
            .iter()
            .map(|(k, v)| (k.clone(), Value::from(v.clone())));
        let mut line: Map<String, Value> = fields.collect();
        // Last: a field from inside the sandbox must not hide what the client relies on.
        line.insert("level".to_owned(), level_name(entry.level).into());
        line.insert("logger".to_owned(), entry.logger.clone().into());
        line.insert("message".to_owned(), entry.message.clone().into());
        Self {
            timestamp: timestamp(entry.at),
            line: Value::Object(line).to_string(),
        }
    }
}

impl From<LogEntry> for Entry {
    fn from(entry: LogEntry) -> Self {
        let mut fields = entry.fields;
        fields.insert("logger".to_owned(), entry.logger);
        Self {
            timestamp: timestamp(entry.at),
            message: entry.message,
            level: entry.level,
            fields,
        }
    }
}

fn level_name(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Warn => "warn",
        LogLevel::Error => "error",
    }
}
