//! Under which address a client reached us: links that it gets must lead back to here.

use axum::extract::FromRequestParts;
use http::{header::HOST, request::Parts};

use crate::shared::error::{ApiError, Result};

const FORWARDED_PROTO: &str = "x-forwarded-proto";

/// Put into the extensions of a request that came over TLS.
#[derive(Debug, Clone, Copy)]
pub struct OverTls;

/// `http://127.0.0.1:3000`, without a slash at the end.
#[derive(Debug)]
pub(crate) struct BaseUrl(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for BaseUrl {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        let header = |name| {
            parts
                .headers
                .get(name)
                .and_then(|value| value.to_str().ok())
        };
        let host = parts
            .uri
            .authority()
            .map(http::uri::Authority::as_str)
            .or_else(|| header(HOST.as_str()))
            .ok_or_else(|| ApiError::bad_request("the request has no Host"))?;
        // A proxy in front of us tells how its client came. That it may be a lie harms only whoever
        // tells it.
        let tls = match header(FORWARDED_PROTO) {
            Some(scheme) => scheme.eq_ignore_ascii_case("https"),
            None => parts.extensions.get::<OverTls>().is_some(),
        };
        let scheme = if tls { "https" } else { "http" };
        Ok(Self(format!("{scheme}://{host}")))
    }
}
