//! Templates. So far all of them are the server's own: anybody can use them, nobody can change them.

use axum::{Json, extract::State};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use soulbox_control::{Error as ControlError, Reference, Template};
use soulbox_types::ENVD_VERSION;
use uuid::Uuid;

use crate::{
    auth::Caller,
    body::OptionalJson,
    error::{ApiError, Result},
    page::{Page, Paging, Position},
    path::Segment,
    query::Query,
    router::App,
    wire::timestamp,
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
    build_count: u32,
    envd_version: &'static str,
    build_status: &'static str,
    is_default: bool,
}

/// E2B's `TemplateWithBuilds`.
#[derive(Debug, Serialize)]
pub(crate) struct WithBuilds {
    #[serde(flatten)]
    template: TemplateAnswer,
    builds: [Build; 1],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Build {
    #[serde(rename = "buildID")]
    id: String,
    status: &'static str,
    created_at: String,
    updated_at: String,
    finished_at: String,
    cpu_count: u32,
    #[serde(rename = "memoryMB")]
    memory_mb: u32,
    #[serde(rename = "diskSizeMB")]
    disk_size_mb: u32,
    envd_version: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BuildStatus {
    #[serde(rename = "templateID")]
    template_id: String,
    #[serde(rename = "buildID")]
    build_id: String,
    status: &'static str,
    logs: [(); 0],
    log_entries: [(); 0],
}

#[derive(Debug, Serialize)]
pub(crate) struct BuildLogs {
    logs: [(); 0],
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
        let info = template.info;
        Self {
            template_id: info.id.into(),
            build_id: info.build_id,
            cpu_count: info.limits.cpu_count(),
            memory_mb: info.limits.memory_mib,
            disk_size_mb: info.limits.disk_mib,
            public: info.public,
            names: info.aliases.clone(),
            aliases: info.aliases,
            created_at: timestamp(info.created_at),
            updated_at: timestamp(info.created_at),
            created_by: None,
            last_spawned_at: template.last_spawned_at.map(timestamp),
            spawn_count: template.spawn_count,
            build_count: 1,
            envd_version: ENVD_VERSION,
            build_status: "ready",
            is_default: true,
        }
    }
}

impl From<&TemplateAnswer> for Build {
    fn from(template: &TemplateAnswer) -> Self {
        Self {
            id: template.build_id.clone(),
            status: template.build_status,
            created_at: template.created_at.clone(),
            updated_at: template.updated_at.clone(),
            finished_at: template.updated_at.clone(),
            cpu_count: template.cpu_count,
            memory_mb: template.memory_mb,
            disk_size_mb: template.disk_size_mb,
            envd_version: template.envd_version,
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
            .templates()
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
        Paging::from_query(&query)?.cut(app.control.templates(), |template| Position {
            at: template.info.created_at,
            id: template.info.id.to_string(),
        });
    Ok(Page {
        items: items.into_iter().map(TemplateAnswer::from).collect(),
        next,
    })
}

pub(crate) async fn list_default(State(app): State<App>, _: Caller) -> Json<Vec<TemplateAnswer>> {
    Json(
        app.control
            .templates()
            .into_iter()
            .map(TemplateAnswer::from)
            .collect(),
    )
}

/// By id only.
pub(crate) async fn get(
    State(app): State<App>,
    _: Caller,
    Segment(id): Segment<String>,
) -> Result<Json<WithBuilds>> {
    let template = app
        .control
        .template(&id)
        .ok_or(ControlError::TemplateNotFound(id))?;
    let template = TemplateAnswer::from(template);
    Ok(Json(WithBuilds {
        builds: [Build::from(&template)],
        template,
    }))
}

pub(crate) async fn alias(
    State(app): State<App>,
    _: Caller,
    Segment(alias): Segment<String>,
) -> Result<Json<Alias>> {
    let template = app.control.resolve_template(&alias)?;
    let (template_id, public) = (template.info.id.into(), template.info.public);
    Ok(Json(Alias {
        template_id,
        public,
    }))
}

pub(crate) async fn delete(
    State(app): State<App>,
    _: Caller,
    Segment(name): Segment<String>,
) -> Result<StatusCode> {
    find(&app, &name)?;
    Err(ControlError::TemplateForbidden(name).into())
}

pub(crate) async fn patch_v1(
    State(app): State<App>,
    _: Caller,
    Segment(name): Segment<String>,
    OptionalJson(body): OptionalJson<PatchBody>,
) -> Result<Json<()>> {
    patch(&app, name, &body).map(|_| Json(()))
}

pub(crate) async fn patch_v2(
    State(app): State<App>,
    _: Caller,
    Segment(name): Segment<String>,
    OptionalJson(body): OptionalJson<PatchBody>,
) -> Result<Json<Names>> {
    patch(&app, name, &body).map(|template| {
        Json(Names {
            names: template.info.aliases,
        })
    })
}

pub(crate) async fn build_status(
    State(app): State<App>,
    _: Caller,
    Segment((name, build)): Segment<(String, String)>,
) -> Result<Json<BuildStatus>> {
    let template = find_build(&app, &name, &build)?;
    Ok(Json(BuildStatus {
        template_id: template.info.id.into(),
        build_id: template.info.build_id,
        status: "ready",
        logs: [],
        log_entries: [],
    }))
}

/// Built-in templates are not built from steps: there is nothing to log.
pub(crate) async fn build_logs(
    State(app): State<App>,
    _: Caller,
    Segment((name, build)): Segment<(String, String)>,
) -> Result<Json<BuildLogs>> {
    find_build(&app, &name, &build)?;
    Ok(Json(BuildLogs { logs: [] }))
}

/// By id or name, whatever the tag.
pub(crate) fn find(app: &App, name: &str) -> Result<Template> {
    let found = app.control.find_template(&Reference::parse(name)?);
    Ok(found.ok_or_else(|| ControlError::TemplateNotFound(name.to_owned()))?)
}

fn find_build(app: &App, name: &str, build: &str) -> Result<Template> {
    if Uuid::try_parse(build).is_err() {
        return Err(ApiError::bad_request("Invalid build ID"));
    }
    let template = find(app, name)?;
    if template.info.build_id != build {
        return Err(ApiError::not_found(format!("build '{build}' not found")));
    }
    Ok(template)
}

fn patch(app: &App, name: String, body: &PatchBody) -> Result<Template> {
    let template = find(app, &name)?;
    match body.public {
        None => Ok(template),
        Some(public) if public == template.info.public => Ok(template),
        Some(_) => Err(ControlError::TemplateForbidden(name).into()),
    }
}

fn check_team(caller: &Caller, query: &Query) -> Result<()> {
    match query.text("teamID") {
        Some(team) if team != caller.tenant.id.as_str() => Err(ApiError::bad_request(
            "teamID is not the team of this API key",
        )),
        _ => Ok(()),
    }
}
