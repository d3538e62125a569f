//! `/secrets`. Values come in and never go out.

use std::collections::BTreeMap;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header::CACHE_CONTROL};
use serde::{Deserialize, Serialize};
use soulbox_control::SecretInfo;
use soulbox_types::Secret;

use crate::{
    router::App,
    shared::{
        auth::Caller,
        body::Json as Body,
        error::Result,
        page::{Paging, Position},
        path::Segment,
        query::Query,
        wire::timestamp,
    },
};

#[derive(Debug, Deserialize)]
pub(crate) struct NewSecret {
    name: String,
    value: Secret,
    metadata: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct SecretUpdate {
    value: Secret,
    metadata: Option<BTreeMap<String, String>>,
}

/// E2B's `Secret`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    #[serde(rename = "secretID")]
    id: String,
    name: String,
    current_version: i64,
    metadata: BTreeMap<String, String>,
    created_at: String,
    updated_at: String,
}

impl From<SecretInfo> for Shown {
    fn from(info: SecretInfo) -> Self {
        Self {
            id: info.id,
            name: info.name,
            current_version: info.version,
            metadata: info.metadata,
            created_at: timestamp(info.created_at),
            updated_at: timestamp(info.updated_at),
        }
    }
}

pub(crate) async fn list(State(app): State<App>, caller: Caller, query: Query) -> Result<Response> {
    let paging = Paging::from_query(&query)?;
    let secrets = app.control.secrets(&caller.tenant).await?;
    let page = paging.cut(secrets, |secret| Position {
        at: secret.created_at,
        id: secret.id.as_str().into(),
    });
    let page = crate::shared::page::Page {
        items: page.items.into_iter().map(Shown::from).collect(),
        next: page.next,
    };
    Ok(never_stored(page))
}

pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    Body(body): Body<NewSecret>,
) -> Result<Response> {
    let metadata = body.metadata.unwrap_or_default();
    let made = app
        .control
        .create_secret(&caller.tenant, &body.name, &body.value, metadata)
        .await?;
    Ok(never_stored((StatusCode::CREATED, Json(Shown::from(made)))))
}

pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    Segment(name): Segment<String>,
) -> Result<Response> {
    let found = app.control.secret(&caller.tenant, &name).await?;
    Ok(never_stored(Json(Shown::from(found))))
}

pub(crate) async fn update(
    State(app): State<App>,
    caller: Caller,
    Segment(name): Segment<String>,
    Body(body): Body<SecretUpdate>,
) -> Result<Response> {
    let changed = app
        .control
        .update_secret(&caller.tenant, &name, &body.value, body.metadata)
        .await?;
    Ok(never_stored(Json(Shown::from(changed))))
}

pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Segment(name): Segment<String>,
) -> Result<StatusCode> {
    app.control.delete_secret(&caller.tenant, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn never_stored(answer: impl IntoResponse) -> Response {
    let mut response = answer.into_response();
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
