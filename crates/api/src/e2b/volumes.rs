//! `/volumes`: making, finding and deleting them. Their files are in `volume_content`.

use axum::{Json, extract::State};
use http::{HeaderMap, StatusCode, Uri};
use serde::{Deserialize, Serialize};
use soulbox_control::VolumeInfo;

use crate::{
    e2b::domain,
    router::App,
    shared::{auth::Caller, body::Json as Body, error::Result, path::Segment},
};

#[derive(Debug, Deserialize)]
pub(crate) struct NewVolume {
    name: String,
}

/// E2B's `Volume`.
#[derive(Debug, Serialize)]
pub(crate) struct Listed {
    #[serde(rename = "volumeID")]
    id: String,
    name: String,
}

/// E2B's `VolumeAndToken`.
#[derive(Debug, Serialize)]
pub(crate) struct Shown {
    #[serde(flatten)]
    listed: Listed,
    token: String,
    /// Clients that have no other address find the content API at `api.<domain>`.
    domain: String,
}

impl From<VolumeInfo> for Listed {
    fn from(info: VolumeInfo) -> Self {
        Self {
            id: info.id,
            name: info.name,
        }
    }
}

impl Shown {
    fn new(info: VolumeInfo, domain: String) -> Self {
        Self {
            token: info.token.expose().to_owned(),
            listed: info.into(),
            domain,
        }
    }
}

pub(crate) async fn list(State(app): State<App>, caller: Caller) -> Result<Json<Vec<Listed>>> {
    let volumes = app.control.list_volumes(&caller.tenant).await?;
    Ok(Json(volumes.into_iter().map(Listed::from).collect()))
}

pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
    Body(body): Body<NewVolume>,
) -> Result<(StatusCode, Json<Shown>)> {
    let made = app
        .control
        .create_volume(&caller.tenant, &body.name)
        .await?;
    let domain = domain::of_request(&uri, &headers, &app.config.domain);
    Ok((StatusCode::CREATED, Json(Shown::new(made, domain))))
}

pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    Segment(id): Segment<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<Shown>> {
    let found = app.control.volume(&caller.tenant, &id).await?;
    let domain = domain::of_request(&uri, &headers, &app.config.domain);
    Ok(Json(Shown::new(found, domain)))
}

pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Segment(id): Segment<String>,
) -> Result<StatusCode> {
    app.control.delete_volume(&caller.tenant, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
