//! Tags of templates. The server's own have one, `default`, and nobody can give them another.

use axum::{Json, extract::State};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use soulbox_control::{Error as ControlError, Reference};

use crate::{
    auth::Caller,
    body::Json as Body,
    error::{ApiError, Result},
    path::Segment,
    query::Query,
    router::App,
    templates::find,
    wire::timestamp,
};

const DEFAULT_TAG: &str = "default";

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Tag {
    #[serde(rename = "tag")]
    name: &'static str,
    #[serde(rename = "buildID")]
    build_id: String,
    created_at: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct Count {
    total: u32,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Exists {
    exists: bool,
    normalized_tag: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct AssignBody {
    target: String,
    tags: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RemoveBody {
    name: String,
    tags: Vec<String>,
}

pub(crate) async fn list(
    State(app): State<App>,
    _: Caller,
    Segment(name): Segment<String>,
) -> Result<Json<[Tag; 1]>> {
    let info = find(&app, &name)?.info;
    let created_at = timestamp(info.created_at);
    Ok(Json([Tag {
        name: DEFAULT_TAG,
        build_id: info.build_id,
        created_at,
    }]))
}

pub(crate) async fn count(
    State(app): State<App>,
    _: Caller,
    Segment(name): Segment<String>,
) -> Result<Json<Count>> {
    find(&app, &name)?;
    Ok(Json(Count { total: 1 }))
}

pub(crate) async fn exists(
    State(app): State<App>,
    _: Caller,
    Segment(name): Segment<String>,
    query: Query,
) -> Result<Json<Exists>> {
    find(&app, &name)?;
    let tag = query
        .text("tag")
        .ok_or_else(|| ApiError::bad_request("tag is required"))?;
    let tag = check_tag(tag)?;
    Ok(Json(Exists {
        exists: tag == DEFAULT_TAG,
        normalized_tag: tag,
    }))
}

pub(crate) async fn assign(
    State(app): State<App>,
    _: Caller,
    Body(body): Body<AssignBody>,
) -> Result<StatusCode> {
    check_tags(&body.tags)?;
    app.control.resolve_template(&body.target)?;
    Err(ControlError::TemplateForbidden(body.target).into())
}

pub(crate) async fn remove(
    State(app): State<App>,
    _: Caller,
    Body(body): Body<RemoveBody>,
) -> Result<StatusCode> {
    if Reference::parse(&body.name)?.tag.is_some() {
        return Err(ApiError::bad_request("the name takes no tag"));
    }
    if check_tags(&body.tags)?.iter().any(|tag| tag == DEFAULT_TAG) {
        return Err(ApiError::bad_request("Cannot delete the 'default' tag"));
    }
    find(&app, &body.name)?;
    Err(ControlError::TemplateForbidden(body.name).into())
}

fn check_tags(tags: &[String]) -> Result<Vec<String>> {
    if tags.is_empty() {
        return Err(ApiError::bad_request("at least one tag is required"));
    }
    tags.iter().map(|tag| check_tag(tag)).collect()
}

/// A tag has the shape that it has in a reference.
fn check_tag(tag: &str) -> Result<String> {
    let reference = Reference::parse(&format!("x:{}", tag.trim()))?;
    reference
        .tag
        .ok_or_else(|| ApiError::bad_request("Invalid tag"))
}
