//! Tags of templates and snapshots: each means one build. The server's own templates have one,
//! `default`, and nobody can give them another.

use axum::{Json, extract::State};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use soulbox_control::{Error as ControlError, Reference, Template};
use soulbox_types::UnixMillis;

use crate::{
    e2b::templates::find,
    router::App,
    shared::{
        auth::Caller,
        body::Json as Body,
        error::{ApiError, Result},
        path::Segment,
        query::Query,
        wire::timestamp,
    },
};

const DEFAULT_TAG: &str = "default";
const MAX_LIMIT: usize = 100;

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

/// What a tag has meant. Only the latest assignment is remembered.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Assignment {
    #[serde(rename = "assignmentId")]
    id: String,
    build_id: String,
    assigned_at: String,
    build_created_at: String,
    build_finished_at: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Group {
    tag: String,
    assignments: Vec<Assignment>,
    has_more: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Groups {
    tags: Vec<Group>,
    next_cursor: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Assignments {
    data: Vec<Assignment>,
    next_cursor: Option<String>,
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

/// The cursor is the number of tags before the page.
pub(crate) async fn groups(
    State(app): State<App>,
    caller: Caller,
    Segment(name): Segment<String>,
    query: Query,
) -> Result<Json<Groups>> {
    let template = find(&app, &caller, &name)?;
    let search = query.text("search").unwrap_or_default().to_lowercase();
    let mut tags: Vec<_> = template.tags.iter().collect();
    tags.retain(|(tag, ..)| tag.contains(&search));
    match query.text("sort") {
        None | Some("name_asc") => tags.sort_by(|a, b| a.0.cmp(&b.0)),
        Some("name_desc") => tags.sort_by(|a, b| b.0.cmp(&a.0)),
        Some("latest_asc") => tags.sort_by_key(|(_, _, at)| *at),
        Some("latest_desc") => tags.sort_by_key(|(_, _, at)| std::cmp::Reverse(*at)),
        Some(_) => {
            return Err(ApiError::bad_request(
                "sort must be name_asc, name_desc, latest_asc or latest_desc",
            ));
        }
    }
    let limit = limit(&query, "tagsLimit")?;
    let from: usize = query.number("tagsCursor")?.unwrap_or_default();
    let end = from.saturating_add(limit).min(tags.len());
    let page = tags.get(from..end).unwrap_or_default();
    let group = |tag: &&(String, String, UnixMillis)| Group {
        tag: tag.0.clone(),
        assignments: assignment(&template, tag).into_iter().collect(),
        has_more: false,
    };
    Ok(Json(Groups {
        tags: page.iter().map(group).collect(),
        next_cursor: (end < tags.len()).then(|| end.to_string()),
    }))
}

pub(crate) async fn assignments(
    State(app): State<App>,
    caller: Caller,
    Segment((name, tag)): Segment<(String, String)>,
    query: Query,
) -> Result<Json<Assignments>> {
    let template = find(&app, &caller, &name)?;
    let tag = check_tag(&tag)?;
    limit(&query, "limit")?;
    let own = template.tags.iter().find(|(own, ..)| *own == tag);
    let own = own.ok_or_else(|| ControlError::TagNotFound {
        template: name,
        tag,
    })?;
    let first = query.text("cursor").is_none();
    Ok(Json(Assignments {
        data: assignment(&template, own)
            .into_iter()
            .filter(|_| first)
            .collect(),
        next_cursor: None,
    }))
}

fn assignment(
    template: &Template,
    (tag, build_id, at): &(String, String, UnixMillis),
) -> Option<Assignment> {
    let build = template.builds.iter().find(|build| build.id == *build_id)?;
    Some(Assignment {
        id: format!("{}:{tag}:{}", template.info.id, at.0),
        build_id: build_id.clone(),
        assigned_at: timestamp(*at),
        build_created_at: timestamp(build.created_at),
        build_finished_at: build.finished_at.map(timestamp),
    })
}

fn limit(query: &Query, name: &'static str) -> Result<usize> {
    let limit = query.number(name)?.unwrap_or(MAX_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        let message = format!("{name} must be between 1 and {MAX_LIMIT}");
        return Err(ApiError::bad_request(message));
    }
    Ok(limit)
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
