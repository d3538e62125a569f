//! Templates: the server's own, which anybody can use and nobody can change, the tenants' own, and
//! their snapshots.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use soulbox_control::{Error as ControlError, Published, Reference, Template, TemplateBuild};
use soulbox_types::ENVD_VERSION;

use crate::{
    router::App,
    shared::{
        auth::Caller,
        body::OptionalJson,
        error::{ApiError, Result},
        page::{Page, Paging, Position, with_next},
        path::Segment,
        query::Query,
        wire::timestamp,
    },
};

/// E2B's `Template`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TemplateAnswer {
    #[serde(rename = "templateID")]
    template_id: String,
    #[serde(rename = "buildID")]
    build_id: String,
    cpu_count: u32,
    #[serde(rename = "memoryMB")]
    memory_mb: u32,
    #[serde(rename = "diskSizeMB")]
    disk_size_mb: u32,
    public: bool,
    aliases: Vec<String>,
    names: Vec<String>,
    created_at: String,
    updated_at: String,
    created_by: Option<()>,
    last_spawned_at: Option<String>,
    spawn_count: u64,
    build_count: usize,
    envd_version: &'static str,
    build_status: &'static str,
    is_default: bool,
}

/// E2B's `TemplateWithBuilds`.
#[derive(Debug, Serialize)]
pub(crate) struct WithBuilds {
    #[serde(flatten)]
    template: TemplateAnswer,
    builds: Vec<Build>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Build {
    #[serde(rename = "buildID")]
    id: String,
    status: &'static str,
    created_at: String,
    updated_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<String>,
    cpu_count: u32,
    #[serde(rename = "memoryMB")]
    memory_mb: u32,
    #[serde(rename = "diskSizeMB")]
    disk_size_mb: u32,
    envd_version: &'static str,
}

#[derive(Debug, Serialize)]
pub(crate) struct Alias {
    #[serde(rename = "templateID")]
    template_id: String,
    public: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct Names {
    names: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct PatchBody {
    public: Option<bool>,
}

impl From<Template> for TemplateAnswer {
    fn from(template: Template) -> Self {
        let updated_at = template.builds.iter().map(|build| build.updated_at).max();
        let info = template.info;
        Self {
            template_id: info.id.into(),
            build_id: info.build_id,
            cpu_count: info.limits.cpu_count(),
            memory_mb: info.limits.memory_mib,
            disk_size_mb: info.limits.disk_mib,
            public: info.public,
            names: template.names,
            aliases: info.aliases,
            created_at: timestamp(info.created_at),
            updated_at: timestamp(updated_at.unwrap_or(info.created_at)),
            created_by: None,
            last_spawned_at: template.last_spawned_at.map(timestamp),
            spawn_count: template.spawn_count,
            build_count: template.builds.len(),
            envd_version: ENVD_VERSION,
            build_status: template.status.as_str(),
            is_default: template.namespace.is_none(),
        }
    }
}

impl From<&TemplateBuild> for Build {
    fn from(build: &TemplateBuild) -> Self {
        Self {
            id: build.id.clone(),
            status: build.status.as_str(),
            created_at: timestamp(build.created_at),
            updated_at: timestamp(build.updated_at),
            finished_at: build.finished_at.map(timestamp),
            cpu_count: build.limits.cpu_count(),
            memory_mb: build.limits.memory_mib,
            disk_size_mb: build.limits.disk_mib,
            envd_version: ENVD_VERSION,
        }
    }
}

pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    query: Query,
) -> Result<Json<Vec<TemplateAnswer>>> {
    check_team(&caller, &query)?;
    Ok(Json(
        app.control
            .templates(&caller.tenant)
            .into_iter()
            .map(TemplateAnswer::from)
            .collect(),
    ))
}

pub(crate) async fn list_pages(
    State(app): State<App>,
    caller: Caller,
    query: Query,
) -> Result<Page<TemplateAnswer>> {
    check_team(&caller, &query)?;
    let Page { items, next } =
        Paging::from_query(&query)?.cut(app.control.templates(&caller.tenant), |template| {
            Position {
                at: template.info.created_at,
                id: template.info.id.as_str().into(),
            }
        });
    Ok(Page {
        items: items.into_iter().map(TemplateAnswer::from).collect(),
        next,
    })
}

pub(crate) async fn list_default(State(app): State<App>, _: Caller) -> Json<Vec<TemplateAnswer>> {
    Json(
        app.control
            .default_templates()
            .into_iter()
            .map(TemplateAnswer::from)
            .collect(),
    )
}

/// By id only. Its builds come in pages, newest first.
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    Segment(id): Segment<String>,
    query: Query,
) -> Result<Response> {
    let paging = Paging::from_query(&query)?;
    let template = app.control.template(&caller.tenant, &id)?;
    let page = paging.cut(template.builds.clone(), |build| Position {
        at: build.created_at,
        id: build.id.as_str().into(),
    });
    let shown = Json(WithBuilds {
        builds: page.items.iter().map(Build::from).collect(),
        template: template.into(),
    });
    Ok(with_next(shown.into_response(), page.next))
}

pub(crate) async fn alias(
    State(app): State<App>,
    caller: Caller,
    Segment(alias): Segment<String>,
) -> Result<Json<Alias>> {
    let template = app.control.resolve_template(&caller.tenant, &alias)?;
    let (template_id, public) = (template.info.id.into(), template.info.public);
    Ok(Json(Alias {
        template_id,
        public,
    }))
}

/// A template or a snapshot, with all of its builds and tags.
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Segment(name): Segment<String>,
) -> Result<StatusCode> {
    let reference = Reference::parse(&name)?;
    app.control
        .delete_template(&caller.tenant, &reference)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Publishing claims the bare name as well.
pub(crate) async fn patch_v1(
    State(app): State<App>,
    caller: Caller,
    Segment(name): Segment<String>,
    OptionalJson(body): OptionalJson<PatchBody>,
) -> Result<Json<()>> {
    patch(&app, &caller, &name, &body, Published::Everywhere).await?;
    Ok(Json(()))
}

pub(crate) async fn patch_v2(
    State(app): State<App>,
    caller: Caller,
    Segment(name): Segment<String>,
    OptionalJson(body): OptionalJson<PatchBody>,
) -> Result<Json<Names>> {
    let template = patch(&app, &caller, &name, &body, Published::InNamespace).await?;
    Ok(Json(Names {
        names: template.names,
    }))
}

/// By id or name, whatever the tag.
pub(crate) fn find(app: &App, caller: &Caller, name: &str) -> Result<Template> {
    let reference = Reference::parse(name)?;
    let found = app.control.find_template(&caller.tenant, &reference)?;
    Ok(found.ok_or_else(|| ControlError::TemplateNotFound(name.to_owned()))?)
}

async fn patch(
    app: &App,
    caller: &Caller,
    name: &str,
    body: &PatchBody,
    published: Published,
) -> Result<Template> {
    let template = find(app, caller, name)?;
    let Some(public) = body.public else {
        return Ok(template);
    };
    let snapshot = template.is_snapshot();
    if snapshot && public {
        return Err(ApiError::not_supported(
            "publishing a snapshot",
            "share its files instead",
        ));
    }
    let servers = template.namespace.is_none();
    if snapshot || (servers && template.info.public == public) {
        return Ok(template);
    }
    let reference = Reference::parse(name)?;
    let published = public.then_some(published);
    let published = app
        .control
        .publish_template(&caller.tenant, &reference, published);
    Ok(published.await?)
}

fn check_team(caller: &Caller, query: &Query) -> Result<()> {
    match query.text("teamID") {
        Some(team) if team != caller.tenant.id.as_str() => Err(ApiError::bad_request(
            "teamID is not the team of this API key",
        )),
        _ => Ok(()),
    }
}
