//! Tags of templates. The server's own have one, `default`, and nobody can give them another; those
//! of a snapshot each mean one of its builds.

use axum::{Json, extract::State};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use soulbox_control::Reference;

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
    name: String,
    #[serde(rename = "buildID")]
    build_id: String,
    created_at: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct Count {
    total: usize,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Exists {
    exists: bool,
    normalized_tag: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct Assigned {
    tags: Vec<String>,
    #[serde(rename = "buildID")]
    build_id: String,
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
    caller: Caller,
    Segment(name): Segment<String>,
) -> Result<Json<Vec<Tag>>> {
    let tags = find(&app, &caller, &name)?.tags.into_iter();
    let tags = tags.map(|(name, build_id, at)| Tag {
        name,
        build_id,
        created_at: timestamp(at),
    });
    Ok(Json(tags.collect()))
}

pub(crate) async fn count(
    State(app): State<App>,
    caller: Caller,
    Segment(name): Segment<String>,
) -> Result<Json<Count>> {
    let total = find(&app, &caller, &name)?.tags.len();
    Ok(Json(Count { total }))
}

pub(crate) async fn exists(
    State(app): State<App>,
    caller: Caller,
    Segment(name): Segment<String>,
    query: Query,
) -> Result<Json<Exists>> {
    let tags = find(&app, &caller, &name)?.tags;
    let tag = query
        .text("tag")
        .ok_or_else(|| ApiError::bad_request("tag is required"))?;
    let tag = check_tag(tag)?;
    Ok(Json(Exists {
        exists: tags.iter().any(|(own, ..)| *own == tag),
        normalized_tag: tag,
    }))
}

pub(crate) async fn assign(
    State(app): State<App>,
    caller: Caller,
    Body(body): Body<AssignBody>,
) -> Result<(StatusCode, Json<Assigned>)> {
    let tags = check_tags(&body.tags)?;
    let build_id = app
        .control
        .assign_tags(&caller.tenant, &body.target, tags.clone())
        .await?;
    Ok((StatusCode::CREATED, Json(Assigned { tags, build_id })))
}

pub(crate) async fn remove(
    State(app): State<App>,
    caller: Caller,
    Body(body): Body<RemoveBody>,
) -> Result<StatusCode> {
    let reference = Reference::parse(&body.name)?;
    if reference.tag.is_some() {
        return Err(ApiError::bad_request("the name takes no tag"));
    }
    let tags = check_tags(&body.tags)?;
    if tags.iter().any(|tag| tag == DEFAULT_TAG) {
        return Err(ApiError::bad_request("Cannot delete the 'default' tag"));
    }
    app.control
        .remove_tags(&caller.tenant, &reference, tags)
        .await?;
    Ok(StatusCode::NO_CONTENT)
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
