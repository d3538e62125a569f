//! `/events/sandboxes`: what happened to sandboxes.

use axum::{Json, extract::State};
use serde::Serialize;
use serde_json::Value;
use soulbox_control::{Event, EventFilter};
use soulbox_types::SandboxId;

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

const DEFAULT_LIMIT: u32 = 10;
const MAX_LIMIT: u32 = 100;
const TYPE_PREFIX: &str = "sandbox.lifecycle.";

/// E2B's first version of an event, as its list shows it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Shown {
    version: &'static str,
    id: String,
    #[serde(rename = "type")]
    kind: String,
    event_category: &'static str,
    event_label: String,
    event_data: Value,
    sandbox_build_id: String,
    sandbox_execution_id: String,
    sandbox_id: String,
    sandbox_team_id: String,
    sandbox_template_id: String,
    timestamp: String,
}

impl From<Event> for Shown {
    fn from(event: Event) -> Self {
        Self {
            version: "v1",
            id: event.id,
            kind: format!("{TYPE_PREFIX}{}", event.kind),
            event_category: "lifecycle",
            event_label: event.kind,
            event_data: event.data,
            sandbox_build_id: event.build,
            sandbox_execution_id: event.execution,
            sandbox_id: event.sandbox.into(),
            sandbox_team_id: event.tenant.into(),
            sandbox_template_id: event.template,
            timestamp: timestamp(event.at),
        }
    }
}

pub(crate) async fn all(
    State(app): State<App>,
    caller: Caller,
    query: Query,
) -> Result<Json<Vec<Shown>>> {
    list(&app, &caller, &query, None).await
}

/// Also of a sandbox that is gone; of one that never was: nothing.
pub(crate) async fn of_sandbox(
    State(app): State<App>,
    caller: Caller,
    SandboxPath(id): SandboxPath,
    query: Query,
) -> Result<Json<Vec<Shown>>> {
    list(&app, &caller, &query, Some(id)).await
}

async fn list(
    app: &App,
    caller: &Caller,
    query: &Query,
    sandbox: Option<SandboxId>,
) -> Result<Json<Vec<Shown>>> {
    let limit = query.number("limit")?.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        let message = format!("limit must be between 1 and {MAX_LIMIT}");
        return Err(ApiError::bad_request(message));
    }
    let oldest_first = match query.text("orderAsc") {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(ApiError::bad_request("orderAsc must be true or false")),
    };
    let kinds = query.list("types").into_iter().map(|name| {
        let kind = name.strip_prefix(TYPE_PREFIX).unwrap_or(name);
        let word = kind.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        word.then(|| kind.to_owned())
            .ok_or_else(|| ApiError::bad_request("types must be event types"))
    });
    let filter = EventFilter {
        sandbox,
        kinds: kinds.collect::<Result<_>>()?,
        oldest_first,
        offset: query.number("offset")?.unwrap_or_default(),
        limit,
    };
    let events = app.control.events(&caller.tenant, &filter).await?;
    Ok(Json(events.into_iter().map(Shown::from).collect()))
}
