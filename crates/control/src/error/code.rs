//! What can go wrong, as programs know it.

use std::fmt;

/// One list for the names, the strings and what they mean.
macro_rules! error_codes {
    ($($(#[doc = $meaning:literal])+ $name:ident = $code:literal,)+) => {
        /// A closed list: every error has one of these, and clients may branch on it. A name never
        /// changes and never gets another meaning. `docs/errors.md` is this list for people.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ErrorCode {
            $($(#[doc = $meaning])+ $name,)+
        }

        impl ErrorCode {
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $code,)+
                }
            }

            /// In a sentence.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($meaning),+).trim_ascii(),)+
                }
            }
        }
    };
}

error_codes! {
    /// Something in the request is not as it must be; the message names it.
    InvalidRequest = "invalid_request",
    /// The body is larger than this request may have.
    RequestTooLarge = "request_too_large",
    /// The body did not arrive in time.
    RequestTooSlow = "request_too_slow",
    /// The body ended too early.
    RequestCutOff = "request_cut_off",
    /// There is no such route.
    RouteNotFound = "route_not_found",
    /// The route exists, with other methods.
    MethodNotFound = "method_not_found",
    /// What was asked for was taken away; newer clients ask for something else.
    ClientOutdated = "client_outdated",
    /// It is part of the protocol, and not built yet.
    NotSupportedYet = "not_supported_yet",
    /// The isolation tier that was asked for is not available; no weaker one takes its place.
    TierUnavailable = "tier_unavailable",
    /// No API key was shown, or one that is not valid.
    Unauthenticated = "unauthenticated",
    /// It belongs to another team.
    AccessDenied = "access_denied",

    /// The idempotency key was used with another request.
    IdempotencyMismatch = "idempotency_request_mismatch",
    /// The first request with this idempotency key is still under way.
    IdempotencyInProgress = "idempotency_in_progress",
    /// The server stopped during the first request with this idempotency key.
    IdempotencyOutcomeUnknown = "idempotency_outcome_unknown",

    /// There is no such sandbox, or it is another's.
    SandboxNotFound = "sandbox_not_found",
    /// The sandbox cannot be used; its files are kept.
    SandboxBroken = "sandbox_broken",
    /// Only what is broken can be recovered or discarded.
    SandboxNotBroken = "sandbox_not_broken",
    /// The sandbox is being killed.
    SandboxEnding = "sandbox_ending",
    /// It must be woken before this can be asked of it.
    SandboxPaused = "sandbox_paused",
    /// Only running sandboxes can be forked.
    SandboxForkOfPaused = "sandbox_fork_of_paused",
    /// Only a running sandbox can do this.
    SandboxNotRunning = "sandbox_not_running",
    /// It is paused already.
    SandboxAlreadyPaused = "sandbox_already_paused",
    /// It runs already.
    SandboxAlreadyRunning = "sandbox_already_running",
    /// Its state changes just now.
    SandboxStateConflict = "sandbox_state_conflict",
    /// It was to be paused only while envd answers, and envd does not.
    SandboxGuestUnresponsive = "sandbox_snapshot_guest_agent_unresponsive",
    /// The tenant has as many running sandboxes as it may have.
    SandboxLimitReached = "sandbox_limit_reached",
    /// The machine is full just now.
    SandboxCapacityUnavailable = "sandbox_capacity_unavailable",
    /// It does not fit on this machine, however long one waits.
    SandboxTooLarge = "sandbox_too_large",
    /// The node did not answer in time; it may still do what was asked.
    SandboxPlacementTimeout = "sandbox_placement_timeout",
    /// The sandbox could not be set up, or ended meanwhile.
    SandboxCreateFailed = "sandbox_create_failed",
    /// The connection into the sandbox could not be made, or broke.
    SandboxUnreachable = "sandbox_unreachable",
    /// What runs inside did not answer in time.
    SandboxUnresponsive = "sandbox_unresponsive",
    /// envd inside refused; the message has its words.
    SandboxRefused = "sandbox_refused",
    /// No such language is known.
    UnknownLanguage = "unknown_language",
    /// The language is known, and the sandbox does not have it.
    LanguageNotInstalled = "language_not_installed",

    /// The name of a template is not written as one.
    InvalidTemplateReference = "invalid_template_reference",
    /// There is no such template.
    TemplateNotFound = "template_not_found",
    /// There is no such built-in template.
    BuiltInNotFound = "built_in_not_found",
    /// The template has no such tag.
    TagNotFound = "tag_not_found",
    /// No build of the template has succeeded yet.
    TemplateWithoutBuild = "template_without_build",
    /// A built-in template that nobody has asked for yet.
    TemplateNotBuilt = "template_not_built",
    /// The template is being built.
    TemplateBuilding = "template_building",
    /// A built-in template could not be built.
    TemplateBuildFailed = "template_build_failed",
    /// The template is the server's own.
    TemplateForbidden = "template_forbidden",
    /// The template is another's.
    TemplateAccessDenied = "template_access_denied",
    /// Something still stands on the template.
    TemplateInUse = "template_in_use",
    /// Something still stands on the snapshot.
    SnapshotInUse = "snapshot_in_use",
    /// The name belongs to something else.
    NameTaken = "name_taken",
    /// There is no such build.
    BuildNotFound = "build_not_found",
    /// The build has ended already.
    BuildEnded = "build_ended",
    /// The tenant has as many builds under way as it may have.
    BuildLimitReached = "build_limit_reached",
    /// This server does not build templates.
    BuildsUnavailable = "builds_unavailable",
    /// The link for an upload is not valid, or not any more.
    UploadLinkInvalid = "upload_link_invalid",

    /// There is a tenant of this name.
    TenantExists = "tenant_exists",
    /// There is no such API key.
    KeyNotFound = "key_not_found",
    /// Without it nobody could come in again.
    LastKey = "last_key",
    /// There is no such secret.
    SecretNotFound = "secret_not_found",
    /// There is a secret of this name.
    SecretExists = "secret_exists",
    /// Several change the secret at once.
    SecretBusy = "secret_busy",
    /// The tenant has as many secrets as it may have.
    SecretLimitReached = "secret_limit_reached",
    /// This server has no volumes.
    VolumesUnavailable = "volumes_unavailable",
    /// There is no such volume.
    VolumeNotFound = "volume_not_found",
    /// There is a volume of this name.
    VolumeExists = "volume_exists",
    /// The tenant has as many volumes as it may have.
    VolumeLimitReached = "volume_limit_reached",
    /// A sandbox has the volume.
    VolumeInUse = "volume_in_use",
    /// The volume's token is not valid.
    VolumeTokenInvalid = "volume_token_invalid",
    /// The volume has nothing at this path.
    VolumePathNotFound = "volume_path_not_found",
    /// The volume has something at this path.
    VolumePathExists = "volume_path_exists",
    /// This cannot be done with what is at this path.
    VolumePathInvalid = "volume_path_invalid",
    /// Nothing more fits into the volume.
    VolumeFull = "volume_full",
    /// There is no such webhook.
    WebhookNotFound = "webhook_not_found",

    /// Something still uses it.
    InUse = "in_use",
    /// What was kept is not what was written: it is not used.
    Damaged = "damaged",
    /// The server's disk is full; nothing was changed.
    DiskFull = "disk_full",
    /// It took longer than it may; it may still happen.
    Timeout = "timeout",
    /// The server broke off its work.
    OperationFailed = "operation_failed",
    /// A fault of the server's; its log says which.
    InternalServerError = "internal_server_error",
}

impl ErrorCode {
    /// Nothing was done, and the same request may succeed later.
    pub fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::RequestTooSlow
                | Self::RequestCutOff
                | Self::IdempotencyInProgress
                | Self::SandboxStateConflict
                | Self::SandboxCapacityUnavailable
                | Self::TemplateBuilding
                | Self::BuildLimitReached
                | Self::SecretBusy
        )
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn codes_are_snake_case_and_each_is_there_once() {
        let codes: BTreeSet<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(codes.len(), ErrorCode::ALL.len());
        for code in codes {
            let valid = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(code.chars().all(valid), "{code}");
        }
    }

    /// `| code | meaning | again |`, whatever columns come after.
    #[test]
    fn the_documentation_has_the_same_list() {
        let written: Vec<String> = include_str!("../../../../docs/errors.md")
            .lines()
            .filter(|line| line.starts_with("| `"))
            .map(|line| line.split(" | ").take(3).collect::<Vec<_>>().join(" | "))
            .collect();
        let row = |code: &ErrorCode| {
            let again = if code.is_retryable() { "yes" } else { "no" };
            format!("| `{code}` | {} | {again}", code.meaning())
        };
        let listed: Vec<String> = ErrorCode::ALL.iter().map(row).collect();
        assert_eq!(written, listed);
    }
}
