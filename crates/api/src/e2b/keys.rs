//! `/api-keys`: a tenant's own keys.

use axum::{Json, extract::State};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use soulbox_control::KeyInfo;

use crate::{
    router::App,
    shared::{auth::Caller, body::Json as Body, error::Result, path::Segment, wire::timestamp},
};

#[derive(Debug, Deserialize)]
pub(crate) struct KeyBody {
    name: String,
}

/// E2B's `TeamAPIKey`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Key {
    id: String,
    name: String,
    mask: Mask,
    created_at: String,
    /// Keys belong to tenants, not to people.
    created_by: Option<()>,
    last_used: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct CreatedKey {
    /// In clear, this once.
    key: String,
    #[serde(flatten)]
    info: Key,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Mask {
    prefix: &'static str,
    value_length: u32,
    masked_value_prefix: String,
    masked_value_suffix: String,
}

impl From<KeyInfo> for Key {
    fn from(info: KeyInfo) -> Self {
        Self {
            id: info.id,
            name: info.name,
            mask: Mask {
                prefix: info.prefix,
                value_length: info.value_length,
                masked_value_prefix: info.mask_prefix,
                masked_value_suffix: info.mask_suffix,
            },
            created_at: timestamp(info.created_at),
            created_by: None,
            last_used: info.last_used_at.map(timestamp),
        }
    }
}

pub(crate) async fn list(State(app): State<App>, caller: Caller) -> Json<Vec<Key>> {
    Json(
        app.control
            .list_keys(&caller.tenant)
            .into_iter()
            .map(Key::from)
            .collect(),
    )
}

pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    Body(body): Body<KeyBody>,
) -> Result<(StatusCode, Json<CreatedKey>)> {
    let made = app.control.create_key(&caller.tenant, &body.name).await?;
    let answer = CreatedKey {
        key: made.key.expose().to_owned(),
        info: made.info.into(),
    };
    Ok((StatusCode::CREATED, Json(answer)))
}

pub(crate) async fn rename(
    State(app): State<App>,
    caller: Caller,
    Segment(id): Segment<String>,
    Body(body): Body<KeyBody>,
) -> Result<StatusCode> {
    app.control
        .rename_key(&caller.tenant, &id, &body.name)
        .await?;
    Ok(StatusCode::ACCEPTED)
}

pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Segment(id): Segment<String>,
) -> Result<StatusCode> {
    app.control.delete_key(&caller.tenant, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
