//! The one map from errors to HTTP for our own routes. Until they have a shape of their own it is
//! that of E2B's.

use axum::response::Response;
use http::StatusCode;
use soulbox_control::{ErrorCode as Code, Problem};

use crate::shared::{
    answer::{ErrorBody, ErrorShape},
    error::ApiError,
};

pub(crate) fn respond(problem: &Problem) -> Response {
    shape(problem.code).response(problem, problem.to_string())
}

/// For errors inside of an answer.
pub(crate) fn body(error: &ApiError) -> ErrorBody {
    let problem = error.problem();
    shape(problem.code).body(problem.to_string())
}

/// The map.
fn shape(code: Code) -> ErrorShape {
    let plain = ErrorShape::plain;
    let coded = |status| ErrorShape::coded(status, code);
    match code {
        Code::InvalidRequest
        | Code::RequestCutOff
        | Code::SandboxRefused
        | Code::InvalidTemplateReference
        | Code::TemplateInUse
        | Code::SnapshotInUse
        | Code::VolumeExists
        | Code::VolumePathInvalid => plain(StatusCode::BAD_REQUEST),
        Code::InUse
        | Code::SandboxTooLarge
        | Code::UnknownLanguage
        | Code::LanguageNotInstalled => coded(StatusCode::BAD_REQUEST),
        Code::Unauthenticated | Code::VolumeTokenInvalid => plain(StatusCode::UNAUTHORIZED),
        Code::AccessDenied
        | Code::TemplateForbidden
        | Code::TemplateAccessDenied
        | Code::UploadLinkInvalid
        | Code::VolumesUnavailable => plain(StatusCode::FORBIDDEN),
        Code::RouteNotFound
        | Code::SandboxNotFound
        | Code::SandboxNotBroken
        | Code::SandboxPaused
        | Code::TemplateNotFound
        | Code::BuiltInNotFound
        | Code::TagNotFound
        | Code::TemplateWithoutBuild
        | Code::TemplateNotBuilt
        | Code::BuildNotFound
        | Code::KeyNotFound
        | Code::SecretNotFound
        | Code::VolumeNotFound
        | Code::VolumePathNotFound
        | Code::WebhookNotFound => plain(StatusCode::NOT_FOUND),
        // As one that is not there: clients make another, or ask what can be done.
        Code::SandboxBroken => coded(StatusCode::NOT_FOUND),
        Code::MethodNotFound => plain(StatusCode::METHOD_NOT_ALLOWED),
        Code::RequestTooSlow => plain(StatusCode::REQUEST_TIMEOUT),
        Code::SandboxEnding
        | Code::SandboxForkOfPaused
        | Code::SandboxNotRunning
        | Code::SandboxAlreadyPaused
        | Code::SandboxAlreadyRunning
        | Code::SandboxStateConflict
        | Code::NameTaken
        | Code::BuildEnded
        | Code::TenantExists
        | Code::LastKey
        | Code::SecretExists
        | Code::SecretBusy
        | Code::VolumeInUse
        | Code::VolumePathExists => plain(StatusCode::CONFLICT),
        Code::IdempotencyInProgress => coded(StatusCode::CONFLICT).saying_retry(),
        Code::IdempotencyOutcomeUnknown => coded(StatusCode::CONFLICT),
        Code::ClientOutdated => plain(StatusCode::GONE),
        Code::RequestTooLarge => plain(StatusCode::PAYLOAD_TOO_LARGE),
        Code::IdempotencyMismatch => coded(StatusCode::UNPROCESSABLE_ENTITY),
        Code::SandboxLimitReached | Code::BuildLimitReached | Code::VolumeLimitReached => {
            plain(StatusCode::TOO_MANY_REQUESTS).saying_retry()
        }
        Code::SecretLimitReached => coded(StatusCode::TOO_MANY_REQUESTS).saying_retry(),
        Code::OperationFailed => plain(StatusCode::INTERNAL_SERVER_ERROR),
        Code::InternalServerError
        | Code::Damaged
        | Code::SandboxCreateFailed
        | Code::TemplateBuildFailed => coded(StatusCode::INTERNAL_SERVER_ERROR),
        Code::NotSupportedYet | Code::TierUnavailable => coded(StatusCode::NOT_IMPLEMENTED),
        Code::SandboxUnreachable => coded(StatusCode::BAD_GATEWAY),
        Code::BuildsUnavailable => plain(StatusCode::SERVICE_UNAVAILABLE).saying_retry(),
        Code::SandboxCapacityUnavailable
        | Code::KernelStuck
        | Code::SandboxGuestUnresponsive
        | Code::TemplateBuilding => coded(StatusCode::SERVICE_UNAVAILABLE).saying_retry(),
        Code::Timeout => plain(StatusCode::GATEWAY_TIMEOUT),
        Code::SandboxPlacementTimeout => coded(StatusCode::GATEWAY_TIMEOUT),
        // Clients have known it by this name since before the two were told apart.
        Code::SandboxUnresponsive => {
            ErrorShape::coded(StatusCode::GATEWAY_TIMEOUT, Code::SandboxUnreachable)
        }
        Code::VolumeFull => plain(StatusCode::INSUFFICIENT_STORAGE).saying_retry(),
        Code::DiskFull => coded(StatusCode::INSUFFICIENT_STORAGE).saying_retry(),
    }
}

#[cfg(test)]
mod tests;
