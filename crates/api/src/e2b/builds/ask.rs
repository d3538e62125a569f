//! `POST /v3/templates`: a place for a build, before its files are uploaded.

use axum::{Json, extract::State};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use soulbox_control::{Asked, BuildRequest, Resources};

use crate::{
    router::App,
    shared::{
        auth::Caller,
        body::Json as Body,
        error::{ApiError, Result},
    },
};

/// E2B's `TemplateBuildRequestV3`, and what is ours.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AskBody {
    name: Option<String>,
    /// What older clients say.
    alias: Option<String>,
    tags: Option<Vec<String>>,
    cpu_count: Option<u32>,
    #[serde(rename = "memoryMB")]
    memory_mb: Option<u32>,
    min_free_disk_mb: Option<i64>,
    #[serde(rename = "teamID")]
    team_id: Option<String>,
    // Ours.
    #[serde(rename = "diskSizeMB")]
    disk_size_mb: Option<u32>,
    instance_type: Option<String>,
}

/// E2B's `TemplateRequestResponseV3`.
#[derive(Debug, Serialize)]
pub(crate) struct AskAnswer {
    #[serde(rename = "templateID")]
    template_id: String,
    #[serde(rename = "buildID")]
    build_id: String,
    public: bool,
    names: Vec<String>,
    tags: Vec<String>,
    aliases: Vec<String>,
}

pub(crate) async fn ask(
    State(app): State<App>,
    caller: Caller,
    Body(body): Body<AskBody>,
) -> Result<(StatusCode, Json<AskAnswer>)> {
    let own = |team: &String| team == caller.tenant.id.as_str();
    if !body.team_id.as_ref().is_none_or(own) {
        return Err(ApiError::bad_request(
            "teamID is not the team of this API key",
        ));
    }
    let ask = body.into_request()?;
    let asked = app.control.request_build(&caller.tenant, ask).await?;
    let answer = AskAnswer::new(asked, &caller.tenant.slug);
    Ok((StatusCode::ACCEPTED, Json(answer)))
}

impl AskBody {
    fn into_request(self) -> Result<BuildRequest> {
        let Ok(free) = self.min_free_disk_mb.map(u32::try_from).transpose() else {
            return Err(ApiError::bad_request("minFreeDiskMb must not be negative"));
        };
        let resources = Resources {
            cpu_count: self.cpu_count,
            memory_mib: self.memory_mb,
            disk_mib: self.disk_size_mb.or(free.filter(|&free| free > 0)),
            preset: None,
        };
        Ok(BuildRequest {
            name: self.name.or(self.alias).unwrap_or_default(),
            tags: self.tags.unwrap_or_default(),
            resources: resources.with_instance_type(self.instance_type.as_deref())?,
        })
    }
}

impl AskAnswer {
    fn new(asked: Asked, slug: &str) -> Self {
        Self {
            template_id: asked.template.into(),
            build_id: asked.build,
            public: asked.public,
            names: vec![format!("{slug}/{}", asked.name)],
            tags: asked.tags,
            aliases: vec![asked.name],
        }
    }
}
