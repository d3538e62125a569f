//! Templates: the server's own, which anybody can use and nobody can change, and the tenants'
//! snapshots.

use axum::{Json, extract::State};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use soulbox_control::{Error as ControlError, Reference, Template, TemplateBuild};
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
        let names = full_names(&template);
        let updated_at = template.builds.last().map(|build| build.created_at);
        let info = template.info;
        Self {
            template_id: info.id.into(),
            build_id: info.build_id,
            cpu_count: info.limits.cpu_count(),
            memory_mb: info.limits.memory_mib,
            disk_size_mb: info.limits.disk_mib,
            public: info.public,
            names,
            aliases: info.aliases,
            created_at: timestamp(info.created_at),
            updated_at: timestamp(updated_at.unwrap_or(info.created_at)),
            created_by: None,
            last_spawned_at: template.last_spawned_at.map(timestamp),
            spawn_count: template.spawn_count,
            build_count: template.builds.len(),
            envd_version: ENVD_VERSION,
            build_status: "ready",
            is_default: template.namespace.is_none(),
        }
    }
}

impl From<&TemplateBuild> for Build {
    fn from(build: &TemplateBuild) -> Self {
        let at = timestamp(build.created_at);
        Self {
            id: build.id.clone(),
            status: "ready",
            created_at: at.clone(),
            updated_at: at.clone(),
            finished_at: at,
            cpu_count: build.limits.cpu_count(),
            memory_mb: build.limits.memory_mib,
            disk_size_mb: build.limits.disk_mib,
            envd_version: ENVD_VERSION,
        }
    }
}

/// With the namespace, where there is one.
fn full_names(template: &Template) -> Vec<String> {
    let aliases = template.info.aliases.iter();
    match &template.namespace {
        None => aliases.cloned().collect(),
        Some(namespace) => aliases
            .map(|alias| format!("{namespace}/{alias}"))
            .collect(),
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
    caller: Caller,
    Segment(id): Segment<String>,
) -> Result<Json<WithBuilds>> {
    let template = app.control.template(&caller.tenant, &id)?;
    Ok(Json(WithBuilds {
        builds: template.builds.iter().rev().map(Build::from).collect(),
        template: template.into(),
    }))
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

/// A snapshot, with all of its tags.
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Segment(name): Segment<String>,
) -> Result<StatusCode> {
    let reference = Reference::parse(&name)?;
    app.control
        .delete_snapshot(&caller.tenant, &reference)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn patch_v1(
    State(app): State<App>,
    caller: Caller,
    Segment(name): Segment<String>,
    OptionalJson(body): OptionalJson<PatchBody>,
) -> Result<Json<()>> {
    patch(&app, &caller, name, &body).map(|_| Json(()))
}

pub(crate) async fn patch_v2(
    State(app): State<App>,
    caller: Caller,
    Segment(name): Segment<String>,
    OptionalJson(body): OptionalJson<PatchBody>,
) -> Result<Json<Names>> {
    patch(&app, &caller, name, &body).map(|template| {
        Json(Names {
            names: full_names(&template),
        })
    })
}

pub(crate) async fn build_status(
    State(app): State<App>,
    caller: Caller,
    Segment((name, build)): Segment<(String, String)>,
) -> Result<Json<BuildStatus>> {
    let template = find_build(&app, &caller, &name, &build)?;
    Ok(Json(BuildStatus {
        template_id: template.info.id.into(),
        build_id: build,
        status: "ready",
        logs: [],
        log_entries: [],
    }))
}

/// Neither the server's templates nor snapshots are built from steps: there is nothing to log.
pub(crate) async fn build_logs(
    State(app): State<App>,
    caller: Caller,
    Segment((name, build)): Segment<(String, String)>,
) -> Result<Json<BuildLogs>> {
    find_build(&app, &caller, &name, &build)?;
    Ok(Json(BuildLogs { logs: [] }))
}

/// By id or name, whatever the tag.
pub(crate) fn find(app: &App, caller: &Caller, name: &str) -> Result<Template> {
    let reference = Reference::parse(name)?;
    let found = app.control.find_template(&caller.tenant, &reference)?;
    Ok(found.ok_or_else(|| ControlError::TemplateNotFound(name.to_owned()))?)
}

fn find_build(app: &App, caller: &Caller, name: &str, build: &str) -> Result<Template> {
    if Uuid::try_parse(build).is_err() {
        return Err(ApiError::bad_request("Invalid build ID"));
    }
    let template = find(app, caller, name)?;
    if template.builds.iter().all(|own| own.id != build) {
        return Err(ApiError::not_found(format!("build '{build}' not found")));
    }
    Ok(template)
}

fn patch(app: &App, caller: &Caller, name: String, body: &PatchBody) -> Result<Template> {
    let template = find(app, caller, &name)?;
    match body.public {
        None => Ok(template),
        Some(public) if public == template.info.public => Ok(template),
        Some(_) if template.namespace.is_some() => Err(ApiError::not_supported(
            "publishing a snapshot",
            "share its files instead",
        )),
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
