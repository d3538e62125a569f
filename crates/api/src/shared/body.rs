//! Reading JSON bodies: whatever the content type, chunked or not, bounded in size and time.

use std::time::Duration;

use axum::extract::{FromRequest, Request};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde_json::Value;
use soulbox_control::ErrorCode;

use crate::shared::error::{ApiError, Result};

const MAX_BYTES: usize = 1024 * 1024;
const READ_LIMIT: Duration = Duration::from_secs(30);

/// A required body, before its fields are looked at.
#[derive(Debug)]
pub(crate) struct Document(pub(crate) Value);

/// A required body.
#[derive(Debug)]
pub(crate) struct Json<T>(pub(crate) T);

/// A body that may be absent, empty or `null`: clients do all of these.
#[derive(Debug)]
pub(crate) struct OptionalJson<T>(pub(crate) T);

impl Document {
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> Result<T> {
        // By reference, so that the document stays.
        T::deserialize(&self.0).map_err(|error| invalid(&error))
    }
}

impl<S: Send + Sync> FromRequest<S> for Document {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self> {
        let bytes = read(request).await?;
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Err(ApiError::bad_request("a JSON body is required"));
        }
        match serde_json::from_slice(&bytes) {
            Ok(document @ Value::Object(_)) => Ok(Self(document)),
            Ok(_) => Err(not_an_object()),
            Err(error) => Err(invalid(&error)),
        }
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self> {
        Document::from_request(request, state)
            .await?
            .parse()
            .map(Self)
    }
}

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for OptionalJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self> {
        let bytes = read(request).await?;
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self(T::default()));
        }
        match serde_json::from_slice(&bytes) {
            Ok(Value::Null) => Ok(Self(T::default())),
            Ok(document @ Value::Object(_)) => Document(document).parse().map(Self),
            Ok(_) => Err(not_an_object()),
            Err(error) => Err(invalid(&error)),
        }
    }
}

async fn read(request: Request) -> Result<bytes::Bytes> {
    let body = Limited::new(request.into_body(), MAX_BYTES).collect();
    match tokio::time::timeout(READ_LIMIT, body).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(ApiError::new(
            ErrorCode::RequestTooLarge,
            format!("the body is larger than {MAX_BYTES} bytes"),
        )),
        Ok(Err(_)) => Err(ApiError::new(
            ErrorCode::RequestCutOff,
            "the body could not be read",
        )),
        Err(_) => Err(ApiError::new(
            ErrorCode::RequestTooSlow,
            "the body did not arrive in time",
        )),
    }
}

/// A list would be taken for an object by the order of its entries.
fn not_an_object() -> ApiError {
    ApiError::bad_request("Invalid request body: it must be a JSON object")
}

fn invalid(error: &serde_json::Error) -> ApiError {
    ApiError::bad_request(format!("Invalid request body: {error}"))
}
