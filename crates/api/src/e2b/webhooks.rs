//! `/events/webhooks`: who is told of events.

use axum::{Json, extract::State};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use soulbox_control::{WebhookChanges, WebhookInfo};
use soulbox_types::Secret;

use crate::{
    router::App,
    shared::{auth::Caller, body::Json as Body, error::Result, path::Segment, wire::timestamp},
};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WebhookBody {
    name: Option<String>,
    url: Option<String>,
    enabled: Option<bool>,
    events: Option<Vec<String>>,
    signature_secret: Option<Secret>,
}

/// Without the secret.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Shown {
    id: String,
    team_id: String,
    /// The same, as the documentation had it before.
    #[serde(rename = "teamID")]
    team_id_before: String,
    name: String,
    created_at: String,
    enabled: bool,
    url: String,
    events: Vec<String>,
}

impl From<WebhookBody> for WebhookChanges {
    fn from(body: WebhookBody) -> Self {
        Self {
            name: body.name,
            url: body.url,
            events: body.events,
            enabled: body.enabled,
            signature_secret: body.signature_secret,
        }
    }
}

impl From<WebhookInfo> for Shown {
    fn from(info: WebhookInfo) -> Self {
        let team_id: String = info.tenant.into();
        Self {
            id: info.id,
            team_id_before: team_id.clone(),
            team_id,
            name: info.name,
            created_at: timestamp(info.created_at),
            enabled: info.enabled,
            url: info.url,
            events: info.events,
        }
    }
}

pub(crate) async fn list(State(app): State<App>, caller: Caller) -> Json<Vec<Shown>> {
    let hooks = app.control.webhooks(&caller.tenant);
    Json(hooks.into_iter().map(Shown::from).collect())
}

pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    Body(body): Body<WebhookBody>,
) -> Result<(StatusCode, Json<Shown>)> {
    let made = app
        .control
        .create_webhook(&caller.tenant, body.into())
        .await?;
    Ok((StatusCode::CREATED, Json(made.into())))
}

pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    Segment(id): Segment<String>,
) -> Result<Json<Shown>> {
    Ok(Json(app.control.webhook(&caller.tenant, &id)?.into()))
}

pub(crate) async fn update(
    State(app): State<App>,
    caller: Caller,
    Segment(id): Segment<String>,
    Body(body): Body<WebhookBody>,
) -> Result<Json<Shown>> {
    let changed = app
        .control
        .update_webhook(&caller.tenant, &id, body.into())
        .await?;
    Ok(Json(changed.into()))
}

/// 200, as E2B documents it.
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Segment(id): Segment<String>,
) -> Result<StatusCode> {
    app.control.delete_webhook(&caller.tenant, &id).await?;
    Ok(StatusCode::OK)
}
