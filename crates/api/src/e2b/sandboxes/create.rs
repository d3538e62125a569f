//! `POST /sandboxes` and `POST /v2/sandboxes`.

use std::collections::BTreeMap;

use axum::{Json, extract::State};
use http::{HeaderMap, StatusCode, Uri};
use serde::Deserialize;
use soulbox_control::{CreateRequest, IdempotencyKey, Resources, Wait};
use soulbox_types::{Tier, UnknownTier};

use super::{SandboxAnswer, features::Features, mcp, patience};
use crate::{
    e2b::domain,
    router::App,
    shared::{
        auth::Caller,
        body::Document,
        error::{ApiError, Result},
    },
};

const IDEMPOTENCY_HEADER: &str = "idempotency-key";

/// Where the two versions differ.
#[derive(Debug, Clone, Copy)]
enum Version {
    V1,
    V2,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CreateBody {
    #[serde(rename = "templateID")]
    template_id: Option<String>,
    timeout: Option<i64>,
    metadata: Option<BTreeMap<String, String>>,
    env_vars: Option<BTreeMap<String, String>>,
    #[serde(rename = "allow_internet_access")]
    allow_internet_access: Option<bool>,
    secure: Option<bool>,
    // Ours.
    cpu_count: Option<u32>,
    #[serde(rename = "memoryMB")]
    memory_mb: Option<u32>,
    #[serde(rename = "diskSizeMB")]
    disk_size_mb: Option<u32>,
    instance_type: Option<String>,
    tier: Option<String>,
    #[serde(flatten)]
    features: Features,
}

pub(crate) async fn v1(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
    document: Document,
) -> Result<(StatusCode, Json<SandboxAnswer>)> {
    create(&app, &caller, &uri, &headers, &document, Version::V1).await
}

pub(crate) async fn v2(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
    document: Document,
) -> Result<(StatusCode, Json<SandboxAnswer>)> {
    create(&app, &caller, &uri, &headers, &document, Version::V2).await
}

async fn create(
    app: &App,
    caller: &Caller,
    uri: &Uri,
    headers: &HeaderMap,
    document: &Document,
    version: Version,
) -> Result<(StatusCode, Json<SandboxAnswer>)> {
    let body: CreateBody = document.parse()?;
    body.features.check()?;
    if let Some(template) = &body.template_id {
        mcp::check(&app.control, &caller.tenant, template)?;
    }
    let idempotency = idempotency_key(headers, document, version)?;
    let request = body.into_request(version, idempotency, patience::of(headers))?;
    let access = app.control.create_sandbox(&caller.tenant, request).await?;
    let domain = domain::of_request(uri, headers, &app.config.domain);
    Ok((
        StatusCode::CREATED,
        Json(SandboxAnswer::new(access, domain)),
    ))
}

impl CreateBody {
    fn into_request(
        mut self,
        version: Version,
        idempotency: Option<IdempotencyKey>,
        wait: Wait,
    ) -> Result<CreateRequest> {
        let template = self
            .template_id
            .ok_or_else(|| ApiError::bad_request("templateID is required"))?;
        Ok(CreateRequest {
            tier: self.tier.as_deref().map(tier_named).transpose()?,
            template,
            timeout: self.timeout.unwrap_or(version.default_timeout()),
            metadata: self.metadata.unwrap_or_default(),
            env: self.env_vars.unwrap_or_default(),
            secure: version.secures(self.secure),
            network: self.features.network(self.allow_internet_access)?,
            lifecycle: self.features.lifecycle()?,
            volume_mounts: self.features.volume_mounts(),
            resources: Resources {
                cpu_count: self.cpu_count,
                memory_mib: self.memory_mb,
                disk_mib: self.disk_size_mb,
                preset: None,
            }
            .with_instance_type(self.instance_type.as_deref())?,
            idempotency,
            wait,
        })
    }
}

/// Never passed over: whoever names a tier must not get another one.
fn tier_named(name: &str) -> Result<Tier> {
    name.parse()
        .map_err(|unknown: UnknownTier| ApiError::bad_request(unknown.to_string()))
}

impl Version {
    fn default_timeout(self) -> i64 {
        match self {
            Self::V1 => 15,
            Self::V2 => 300,
        }
    }

    /// Clients from before `secure` do not send a token, so version 1 protects only when asked.
    fn secures(self, asked: Option<bool>) -> bool {
        match self {
            Self::V1 => asked.unwrap_or(false),
            Self::V2 => true,
        }
    }
}

/// The same request is the same document (whatever the order of its fields) on the same route.
fn idempotency_key(
    headers: &HeaderMap,
    document: &Document,
    version: Version,
) -> Result<Option<IdempotencyKey>> {
    let Some(value) = headers.get(IDEMPOTENCY_HEADER) else {
        return Ok(None);
    };
    let key = value.to_str().unwrap_or_default();
    let request = format!("{version:?} {}", document.0);
    Ok(Some(IdempotencyKey::new(key, request.as_bytes())?))
}
