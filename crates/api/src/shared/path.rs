//! Parameters in paths. They arrive percent-encoded as one segment and are decoded after routing,
//! because names contain slashes.

use axum::extract::{FromRequestParts, Path};
use http::request::Parts;
use serde::de::DeserializeOwned;
use soulbox_types::SandboxId;

use crate::shared::error::{ApiError, Result};

/// As axum's `Path`, with our errors.
#[derive(Debug)]
pub(crate) struct Segment<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Segment<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(value)) => Ok(Self(value)),
            Err(_) => Err(ApiError::bad_request("Invalid path parameter")),
        }
    }
}

/// A sandbox's id, also in the old form `<id>-<clientID>`.
#[derive(Debug)]
pub(crate) struct SandboxPath(pub(crate) SandboxId);

impl<S: Send + Sync> FromRequestParts<S> for SandboxPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let Segment(text) = Segment::<String>::from_request_parts(parts, state).await?;
        let id = sandbox_id(&text)?;
        tracing::Span::current().record("sandbox_id", id.as_str());
        Ok(Self(id))
    }
}

pub(crate) fn sandbox_id(text: &str) -> Result<SandboxId> {
    let id = match text.split_once('-') {
        Some((_, client)) if client.contains('-') => None,
        Some((id, _)) => Some(id),
        None => Some(text),
    };
    id.and_then(|id| id.parse().ok())
        .ok_or_else(|| ApiError::bad_request("Invalid sandbox ID"))
}

#[cfg(test)]
mod properties;
