//! What can go wrong, as programs know it.

use std::fmt;

/// One list for the names, the strings, what they mean and what to do.
macro_rules! error_codes {
    ($($(#[doc = $meaning:literal])+ $name:ident = $code:literal => $remedy:literal,)+) => {
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

            /// What to do, where nothing more is known than the code: an error's own hint knows more.
            pub fn remedy(self) -> &'static str {
                match self {
                    $(Self::$name => $remedy,)+
                }
            }
        }
    };
}

error_codes! {
    /// Something in the request is not as it must be; the message names it.
    InvalidRequest = "invalid_request" =>
        "Change what the message names.",
    /// The body is larger than this request may have.
    RequestTooLarge = "request_too_large" =>
        "Send less, or in parts; the message has the limit.",
    /// The body did not arrive in time.
    RequestTooSlow = "request_too_slow" =>
        "Send it again, on a faster connection or in smaller parts.",
    /// The body ended too early.
    RequestCutOff = "request_cut_off" =>
        "Send it again, whole.",
    /// There is no such route.
    RouteNotFound = "route_not_found" =>
        "Compare method and path with docs/conformance.md; is `E2B_API_URL` the server's address without a path?",
    /// The route exists, with other methods.
    MethodNotFound = "method_not_found" =>
        "Compare method and path with docs/conformance.md.",
    /// What was asked for was taken away; newer clients ask for something else.
    ClientOutdated = "client_outdated" =>
        "Update the SDK or CLI.",
    /// It is part of the protocol, and not built yet.
    NotSupportedYet = "not_supported_yet" =>
        "Leave it out; docs/conformance.md lists what there is.",
    /// The isolation tier that was asked for is not available; no weaker one takes its place.
    TierUnavailable = "tier_unavailable" =>
        "Ask for another tier, or none; `sudo soulbox doctor` says what the machine lacks.",
    /// No API key was shown, or one that is not valid.
    Unauthenticated = "unauthenticated" =>
        "Load `env` of this server's data folder, or make a key with `soulbox key create`.",
    /// It belongs to another team.
    AccessDenied = "access_denied" =>
        "Use a key of the team that owns it.",

    /// The idempotency key was used with another request.
    IdempotencyMismatch = "idempotency_request_mismatch" =>
        "Take a new key for another request.",
    /// The first request with this idempotency key is still under way.
    IdempotencyInProgress = "idempotency_in_progress" =>
        "Try again after `Retry-After`: the answer will be that of the first.",
    /// The server stopped during the first request with this idempotency key.
    IdempotencyOutcomeUnknown = "idempotency_outcome_unknown" =>
        "List your sandboxes, kill what is not wanted, and take a new key.",

    /// There is no such sandbox, or it is another's.
    SandboxNotFound = "sandbox_not_found" =>
        "`soulbox ls` lists yours, paused ones too; the message says when and why one of yours ended. Make a new one.",
    /// The sandbox cannot be used; its files are kept.
    SandboxBroken = "sandbox_broken" =>
        "`soulbox recover ID` brings it back, or exports its disk; `soulbox ls --broken` lists them.",
    /// Only what is broken can be recovered or discarded.
    SandboxNotBroken = "sandbox_not_broken" =>
        "`soulbox ls --broken` lists those that are.",
    /// The sandbox is being killed.
    SandboxEnding = "sandbox_ending" =>
        "Nothing: it is going. Make a new one.",
    /// It must be woken before this can be asked of it.
    SandboxPaused = "sandbox_paused" =>
        "Resume it: connect to it, or `soulbox resume ID`.",
    /// Only running sandboxes can be forked.
    SandboxForkOfPaused = "sandbox_fork_of_paused" =>
        "Connect to it first, or `soulbox resume ID`.",
    /// Only a running sandbox can do this.
    SandboxNotRunning = "sandbox_not_running" =>
        "Connect to it first, or `soulbox resume ID`.",
    /// It is paused already.
    SandboxAlreadyPaused = "sandbox_already_paused" =>
        "Nothing: it is as asked for.",
    /// It runs already.
    SandboxAlreadyRunning = "sandbox_already_running" =>
        "Nothing: it is as asked for. To move its end, set its timeout.",
    /// Its state changes just now.
    SandboxStateConflict = "sandbox_state_conflict" =>
        "Try again shortly.",
    /// It was to be paused only while envd answers, and envd does not.
    SandboxGuestUnresponsive = "sandbox_snapshot_guest_agent_unresponsive" =>
        "Pause it without `strict`, or end what keeps it busy.",
    /// The tenant has as many running sandboxes as it may have.
    SandboxLimitReached = "sandbox_limit_reached" =>
        "Kill or pause some, or raise `--max-sandboxes`.",
    /// The machine is full just now.
    SandboxCapacityUnavailable = "sandbox_capacity_unavailable" =>
        "Try again after `Retry-After`; the message names what is short (docs/admission.md).",
    /// The machine's kernel does not end processes; nothing is made or woken there until it does.
    KernelStuck = "kernel_stuck" =>
        "The operator restarts the machine if it lasts; `sudo soulbox doctor` says more.",
    /// It does not fit on this machine, however long one waits.
    SandboxTooLarge = "sandbox_too_large" =>
        "Ask for less than the message says there is.",
    /// The node did not answer in time; it may still do what was asked.
    SandboxPlacementTimeout = "sandbox_placement_timeout" =>
        "List your sandboxes before you ask again: it may be there.",
    /// The sandbox could not be set up, or ended meanwhile.
    SandboxCreateFailed = "sandbox_create_failed" =>
        "The message has the step that failed; `sudo soulbox doctor` tries each of them.",
    /// The connection into the sandbox could not be made, or broke.
    SandboxUnreachable = "sandbox_unreachable" =>
        "Look at `soulbox logs ID`; is it still running?",
    /// What runs inside did not answer in time.
    SandboxUnresponsive = "sandbox_unresponsive" =>
        "Give it more time, cpu or memory (`soulbox stats ID`).",
    /// envd inside refused; the message has its words.
    SandboxRefused = "sandbox_refused" =>
        "Change what the message names.",
    /// No such language is known.
    UnknownLanguage = "unknown_language" =>
        "Use one of those that the message lists.",
    /// The language is known, and the sandbox does not have it.
    LanguageNotInstalled = "language_not_installed" =>
        "Install it in the sandbox, or take a template that has it.",

    /// The name of a template is not written as one.
    InvalidTemplateReference = "invalid_template_reference" =>
        "Write it as NAME, NAME:TAG or TEAM/NAME:TAG.",
    /// There is no such template.
    TemplateNotFound = "template_not_found" =>
        "`soulbox template ls` lists them; a name is built with `soulbox template build -t NAME`.",
    /// There is no such built-in template.
    BuiltInNotFound = "built_in_not_found" =>
        "Use one of those that the message lists.",
    /// The template has no such tag.
    TagNotFound = "tag_not_found" =>
        "`soulbox template inspect NAME` lists its tags.",
    /// No build of the template has succeeded yet.
    TemplateWithoutBuild = "template_without_build" =>
        "`soulbox template logs NAME` says how far the newest build is, or why it failed.",
    /// A built-in template that nobody has asked for yet.
    TemplateNotBuilt = "template_not_built" =>
        "`soulbox template build --builtin NAME`.",
    /// The template is being built for its first use; the message says how far it is.
    TemplateBuilding = "template_building" =>
        "Call again: it waits for the same build. `Prefer: wait=SECONDS` waits longer, \
         `soulbox template build --builtin NAME` shows the progress.",
    /// A built-in template could not be built.
    TemplateBuildFailed = "template_build_failed" =>
        "Mend what the message says, then `soulbox template build --builtin NAME`.",
    /// The template is the server's own.
    TemplateForbidden = "template_forbidden" =>
        "Build one of your own from it: `FROM template://NAME`.",
    /// The template is another's.
    TemplateAccessDenied = "template_access_denied" =>
        "Ask its owner to publish it, or use a key of its team.",
    /// Something still stands on the template.
    TemplateInUse = "template_in_use" =>
        "Kill the sandboxes, and delete the snapshots, that the message names.",
    /// Something still stands on the snapshot.
    SnapshotInUse = "snapshot_in_use" =>
        "Kill the sandboxes, and delete the snapshots, that the message names.",
    /// The name belongs to something else.
    NameTaken = "name_taken" =>
        "Choose another name.",
    /// There is no such build.
    BuildNotFound = "build_not_found" =>
        "`soulbox template inspect NAME` lists its builds.",
    /// The build has ended already.
    BuildEnded = "build_ended" =>
        "Nothing: begin another build.",
    /// The tenant has as many builds under way as it may have.
    BuildLimitReached = "build_limit_reached" =>
        "Wait for one to end, or cancel some.",
    /// This server does not build templates.
    BuildsUnavailable = "builds_unavailable" =>
        "Use a server that builds.",
    /// The link for an upload is not valid, or not any more.
    UploadLinkInvalid = "upload_link_invalid" =>
        "Ask for a new link, and use it at once.",

    /// There is a tenant of this name.
    TenantExists = "tenant_exists" =>
        "Choose another name.",
    /// There is no such API key.
    KeyNotFound = "key_not_found" =>
        "`soulbox key ls` lists them.",
    /// Without it nobody could come in again.
    LastKey = "last_key" =>
        "Make another key first.",
    /// There is no such secret.
    SecretNotFound = "secret_not_found" =>
        "List them; names are the tenant's own.",
    /// There is a secret of this name.
    SecretExists = "secret_exists" =>
        "Change that one, or choose another name.",
    /// Several change the secret at once.
    SecretBusy = "secret_busy" =>
        "Try again shortly.",
    /// The tenant has as many secrets as it may have.
    SecretLimitReached = "secret_limit_reached" =>
        "Delete some.",
    /// This server has no volumes.
    VolumesUnavailable = "volumes_unavailable" =>
        "Use a server that has volumes.",
    /// There is no such volume.
    VolumeNotFound = "volume_not_found" =>
        "List them; ids and names are the tenant's own.",
    /// There is a volume of this name.
    VolumeExists = "volume_exists" =>
        "Use that one, or choose another name.",
    /// The tenant has as many volumes as it may have.
    VolumeLimitReached = "volume_limit_reached" =>
        "Delete some.",
    /// A sandbox has the volume.
    VolumeInUse = "volume_in_use" =>
        "Kill the sandbox that the message names first.",
    /// The volume's token is not valid.
    VolumeTokenInvalid = "volume_token_invalid" =>
        "Take the token that the volume has now (`GET /volumes/{volumeID}`).",
    /// The volume has nothing at this path.
    VolumePathNotFound = "volume_path_not_found" =>
        "List the folder above it.",
    /// The volume has something at this path.
    VolumePathExists = "volume_path_exists" =>
        "Remove it first, or choose another path.",
    /// This cannot be done with what is at this path.
    VolumePathInvalid = "volume_path_invalid" =>
        "The message says what the path is, or what is wrong with it.",
    /// Nothing more fits into the volume.
    VolumeFull = "volume_full" =>
        "Delete files in the volume. Waiting does not help.",
    /// There is no such webhook.
    WebhookNotFound = "webhook_not_found" =>
        "List them; ids are the tenant's own.",

    /// Something still uses it.
    InUse = "in_use" =>
        "End what the message names first.",
    /// What was kept is not what was written: it is not used.
    Damaged = "damaged" =>
        "Use an older snapshot, or copy out what can be read; the disk of the server may be failing.",
    /// The server's disk is full; nothing was changed.
    DiskFull = "disk_full" =>
        "Delete sandboxes, snapshots, volumes or templates, or give the server's disk more room. Waiting alone does not help.",
    /// It took longer than it may; it may still happen.
    Timeout = "timeout" =>
        "Look whether it happened before you ask again.",
    /// The server broke off its work.
    OperationFailed = "operation_failed" =>
        "The server stopped, or its log says why: look whether it happened, then ask again.",
    /// A fault of the server's; its log says which.
    InternalServerError = "internal_server_error" =>
        "The operator finds the cause in the server's log.",
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
                | Self::KernelStuck
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

    #[test]
    fn every_code_says_what_to_do() {
        for code in ErrorCode::ALL {
            let remedy = code.remedy();
            assert!(
                remedy.ends_with(['.', '?']),
                "{code}: {remedy:?} is no sentence"
            );
            assert!(!remedy.contains(" | "), "{code}: it is a cell of a table");
            let words = remedy.split_whitespace().count();
            assert!(words >= 2, "{code}: {remedy:?}");
        }
    }

    /// `| code | meaning | what to do | again |`, whatever columns come after.
    #[test]
    fn the_documentation_has_the_same_list() {
        let written: Vec<String> = include_str!("../../../../docs/errors.md")
            .lines()
            .filter(|line| line.starts_with("| `"))
            .map(|line| line.split(" | ").take(4).collect::<Vec<_>>().join(" | "))
            .collect();
        let row = |code: &ErrorCode| {
            let again = if code.is_retryable() { "yes" } else { "no" };
            format!(
                "| `{code}` | {} | {} | {again}",
                code.meaning(),
                code.remedy()
            )
        };
        let listed: Vec<String> = ErrorCode::ALL.iter().map(row).collect();
        assert_eq!(written, listed);
    }
}
