//! Who asks.

use axum::extract::FromRequestParts;
use http::{HeaderMap, header::AUTHORIZATION, request::Parts};
use soulbox_control::{ErrorCode, Tenant};
use soulbox_types::Secret;

use crate::{
    router::App,
    shared::error::{ApiError, Result},
};

const KEY_HEADER: &str = "x-api-key";

/// A tenant, by one of its API keys.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) tenant: Tenant,
    /// The key that was shown.
    pub(crate) key: Secret,
}

impl FromRequestParts<App> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let Some(key) = shown_key(&parts.headers) else {
            let hint = "send it in the X-API-Key header (E2B_API_KEY for the SDKs)";
            return Err(ApiError::new(ErrorCode::Unauthenticated, "no API key").hint(hint));
        };
        let tenant = app.control.authenticate(key)?;
        tracing::Span::current().record("tenant_id", tenant.id.as_str());
        Ok(Self {
            tenant,
            key: Secret::new(key),
        })
    }
}

/// The CLI shows what it has as a bearer on `GET /teams`; a key is welcome there as well.
fn shown_key(headers: &HeaderMap) -> Option<&str> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = || {
        let (scheme, token) = text(AUTHORIZATION.as_str())?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(token)
    };
    text(KEY_HEADER)
        .or_else(bearer)
        .map(str::trim)
        .filter(|key| !key.is_empty())
}
