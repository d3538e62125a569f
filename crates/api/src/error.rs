//! The one map from errors to HTTP. E2B's clients read `code` and `message` from the body of every
//! error, and some read nothing else.

use std::time::Duration;

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header::RETRY_AFTER};
use serde::Serialize;
use soulbox_control::{Error as ControlError, build::FilesError, volume::Error as VolumeError};
use soulbox_runtime::Error as NodeError;

pub(crate) type Result<T, E = ApiError> = std::result::Result<T, E>;

/// Until a build may have ended.
const BUILD_PAUSE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    message: String,
    error_code: Option<&'static str>,
    retry: Retry,
}

/// What E2B's Python client is told about trying again.
#[derive(Debug, Clone, Copy)]
enum Retry {
    /// It goes by the status.
    Unsaid,
    Never,
    After(Duration),
}

#[derive(Debug, Serialize)]
pub(crate) struct ErrorBody {
    code: u16,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_code: Option<&'static str>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            error_code: None,
            retry: Retry::Unsaid,
        }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    pub(crate) fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, message)
    }

    /// `what` is a noun phrase; `instead` is what the caller can do.
    pub(crate) fn not_supported(what: &str, instead: &str) -> Self {
        let message = format!("{what} is not supported yet by SoulBox: {instead}");
        Self::new(StatusCode::NOT_IMPLEMENTED, message).coded("not_supported_yet")
    }

    pub(crate) fn into_body(self) -> ErrorBody {
        ErrorBody {
            code: self.status.as_u16(),
            message: self.message,
            error_code: self.error_code,
        }
    }

    pub(crate) fn coded(mut self, error_code: &'static str) -> Self {
        self.error_code = Some(error_code);
        self
    }

    fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, retry) = (self.status, self.retry);
        let mut response = (status, Json(self.into_body())).into_response();
        let headers = response.headers_mut();
        match retry {
            Retry::Unsaid => {}
            Retry::Never => {
                headers.insert("should-retry", HeaderValue::from_static("false"));
            }
            Retry::After(wait) => {
                headers.insert("should-retry", HeaderValue::from_static("true"));
                // In whole seconds, and zero would mean a busy loop.
                headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
            }
        }
        response
    }
}

impl From<ControlError> for ApiError {
    fn from(error: ControlError) -> Self {
        let message = error.to_string();
        let plain = |status| Self::new(status, message.clone());
        match error {
            ControlError::Unauthenticated | ControlError::VolumeToken => {
                plain(StatusCode::UNAUTHORIZED)
            }
            ControlError::TooManySecrets(_) => plain(StatusCode::TOO_MANY_REQUESTS)
                .coded("secret_limit_reached")
                .retry(Retry::Never),
            ControlError::Volume(error) => error.into(),
            // As one that is not there: clients make another, or ask what can be done.
            ControlError::SandboxBroken { .. } => {
                plain(StatusCode::NOT_FOUND).coded("sandbox_broken")
            }
            ControlError::SandboxNotFound { .. }
            | ControlError::NotBroken(_)
            | ControlError::SandboxPaused { .. }
            | ControlError::TemplateNotFound(_)
            | ControlError::UnknownBuiltIn { .. }
            | ControlError::TagNotFound { .. }
            | ControlError::NoBuildSucceeded(_)
            | ControlError::TemplateNotBuilt(_)
            | ControlError::BuildNotFound(_)
            | ControlError::SecretNotFound(_)
            | ControlError::VolumeNotFound(_)
            | ControlError::WebhookNotFound(_)
            | ControlError::KeyNotFound(_) => plain(StatusCode::NOT_FOUND),
            ControlError::Invalid(_)
            | ControlError::VolumeExists(_)
            | ControlError::InvalidReference(_)
            | ControlError::TemplateInUse { .. }
            | ControlError::SnapshotInUse { .. } => plain(StatusCode::BAD_REQUEST),
            ControlError::NoVolumes
            | ControlError::TemplateForbidden(_)
            | ControlError::TemplateOfAnother(_)
            | ControlError::UploadLink => plain(StatusCode::FORBIDDEN),
            ControlError::TooManyBuilds(_) => {
                plain(StatusCode::TOO_MANY_REQUESTS).retry(Retry::After(BUILD_PAUSE))
            }
            ControlError::NoBuilder => plain(StatusCode::SERVICE_UNAVAILABLE).retry(Retry::Never),
            ControlError::TemplateBuilding { .. } => plain(StatusCode::SERVICE_UNAVAILABLE)
                .coded("template_building")
                .retry(Retry::After(BUILD_PAUSE)),
            ControlError::TemplateBuildFailed { .. } => {
                plain(StatusCode::INTERNAL_SERVER_ERROR).coded("template_build_failed")
            }
            ControlError::Files(error) => from_files(&error),
            ControlError::SecretExists(_)
            | ControlError::SecretBusy(_)
            | ControlError::VolumeInUse { .. }
            | ControlError::SandboxEnding { .. }
            | ControlError::AlreadyRunning { .. }
            | ControlError::AlreadyPaused { .. }
            | ControlError::ForkOfPaused { .. }
            | ControlError::SandboxNotRunning { .. }
            | ControlError::TenantExists(_)
            | ControlError::NameTaken { .. }
            | ControlError::BuildEnded(_)
            | ControlError::LastKey => plain(StatusCode::CONFLICT),
            ControlError::GuestUnresponsive { .. } => plain(StatusCode::SERVICE_UNAVAILABLE)
                .coded("sandbox_snapshot_guest_agent_unresponsive")
                .retry(Retry::Never),
            ControlError::TooManySandboxes(_) | ControlError::TooManyVolumes(_) => {
                plain(StatusCode::TOO_MANY_REQUESTS).retry(Retry::Never)
            }
            ControlError::IdempotencyMismatch => {
                plain(StatusCode::UNPROCESSABLE_ENTITY).coded("idempotency_request_mismatch")
            }
            ControlError::IdempotencyInProgress => plain(StatusCode::CONFLICT)
                .coded("idempotency_in_progress")
                .retry(Retry::After(Duration::from_secs(1))),
            ControlError::IdempotencyOutcomeUnknown => {
                plain(StatusCode::CONFLICT).coded("idempotency_outcome_unknown")
            }
            ControlError::EndedDuringCreate(_) => {
                plain(StatusCode::INTERNAL_SERVER_ERROR).coded("sandbox_create_failed")
            }
            ControlError::Timeout { .. } => plain(StatusCode::GATEWAY_TIMEOUT),
            ControlError::Node(error) => from_node(&error),
            ControlError::Store(ref store) if store.is_disk_full() => disk_full(),
            ControlError::Store(_) | ControlError::Internal(_) => internal(&error),
        }
    }
}

impl From<VolumeError> for ApiError {
    fn from(error: VolumeError) -> Self {
        let plain = |status| Self::new(status, error.to_string());
        match &error {
            VolumeError::NoVolume(_) | VolumeError::NotFound => plain(StatusCode::NOT_FOUND),
            VolumeError::Exists => plain(StatusCode::CONFLICT),
            VolumeError::NotADirectory
            | VolumeError::IsADirectory
            | VolumeError::Special
            | VolumeError::Links
            | VolumeError::Root
            | VolumeError::Path(_)
            | VolumeError::TooMany(_) => plain(StatusCode::BAD_REQUEST),
            VolumeError::NoSpace => plain(StatusCode::INSUFFICIENT_STORAGE),
            VolumeError::Io { .. } => internal(&error),
        }
    }
}

fn from_files(error: &FilesError) -> ApiError {
    let plain = |status| ApiError::new(status, error.to_string());
    match error {
        FilesError::TooLarge { .. } => plain(StatusCode::PAYLOAD_TOO_LARGE),
        FilesError::NoSpace { .. } => plain(StatusCode::INSUFFICIENT_STORAGE).coded("disk_full"),
        FilesError::Cut(_) => plain(StatusCode::BAD_REQUEST),
        FilesError::Io(source) if disk_is_full(source) => disk_full(),
        FilesError::Io(_) => internal(error),
    }
}

fn from_node(error: &NodeError) -> ApiError {
    let plain = |status| ApiError::new(status, error.to_string());
    match error {
        NodeError::SandboxNotFound(_) | NodeError::TemplateNotFound(_) => {
            plain(StatusCode::NOT_FOUND)
        }
        NodeError::WrongState { .. } => plain(StatusCode::CONFLICT),
        NodeError::InUse { .. } => plain(StatusCode::BAD_REQUEST).coded("in_use"),
        NodeError::Damaged { .. } => {
            tracing::error!(%error, "what was kept is damaged");
            plain(StatusCode::INTERNAL_SERVER_ERROR).coded("damaged")
        }
        NodeError::Io { source, .. } if disk_is_full(source) => disk_full(),
        NodeError::NoCapacity { retry_after, .. } => plain(StatusCode::SERVICE_UNAVAILABLE)
            .coded("sandbox_capacity_unavailable")
            .retry(Retry::After(*retry_after)),
        NodeError::TooLarge { .. } => plain(StatusCode::BAD_REQUEST).coded("sandbox_too_large"),
        NodeError::Unsupported { .. } => {
            plain(StatusCode::NOT_IMPLEMENTED).coded("not_supported_yet")
        }
        NodeError::Timeout { .. } => {
            plain(StatusCode::GATEWAY_TIMEOUT).coded("sandbox_placement_timeout")
        }
        NodeError::Start { .. } => {
            tracing::error!(%error, "a sandbox did not start");
            plain(StatusCode::INTERNAL_SERVER_ERROR).coded("sandbox_create_failed")
        }
        NodeError::PortClosed { .. } | NodeError::Io { .. } => internal(error),
    }
}

fn disk_full() -> ApiError {
    let message = "the server's disk is full; nothing was changed: free space there and try again";
    ApiError::new(StatusCode::INSUFFICIENT_STORAGE, message).coded("disk_full")
}

fn disk_is_full(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

/// The operator gets the whole story, the client only that it was not its fault.
fn internal(error: &dyn std::error::Error) -> ApiError {
    let mut chain = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        chain = format!("{chain}: {next}");
        cause = next.source();
    }
    tracing::error!(error = chain, "request failed");
    let message = "something went wrong inside the server: its log says what";
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message).coded("internal_server_error")
}

#[cfg(test)]
mod tests;
