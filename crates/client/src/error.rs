use std::{io, time::Duration};

use http::StatusCode;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The server's own answer to a refused request, as E2B shapes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    pub status: StatusCode,
    pub code: i64,
    pub message: String,
    /// Machine-readable, when the server gave one.
    pub error_code: Option<String>,
}

impl ApiError {
    /// By what the server calls it, where it does: one status has many reasons.
    fn hint(&self) -> Option<&'static str> {
        Some(match (self.error_code.as_deref(), self.status) {
            (Some("sandbox_capacity_unavailable"), _) => {
                "the server is full: end some sandboxes (`soulbox kill`) or try again later"
            }
            (Some("template_building"), _) => {
                "`soulbox template ls` shows when it is ready, `soulbox template logs -f NAME` how \
                 far it is: then repeat the command"
            }
            (_, StatusCode::UNAUTHORIZED) => {
                "check the key (--api-key, SOULBOX_API_KEY or E2B_API_KEY); on the server's \
                 machine `soulbox key create NAME --offline` makes one"
            }
            (Some("sandbox_broken"), _) => return None,
            (_, StatusCode::NOT_FOUND) if self.is_about("is paused") => {
                "`soulbox resume` resumes it, for five minutes or --timeout"
            }
            (_, StatusCode::NOT_FOUND) if self.is_about("sandbox") => {
                "`soulbox ls` lists your sandboxes, paused ones too"
            }
            (_, StatusCode::NOT_FOUND) if self.is_about("template") => {
                "`soulbox template ls` shows the templates"
            }
            (_, StatusCode::FORBIDDEN) if self.is_about("template") => {
                "`soulbox template ls` shows those that this key may use; another team's must be \
                 published by it first"
            }
            _ => return None,
        })
    }

    fn is_about(&self, what: &str) -> bool {
        self.message.to_lowercase().contains(what)
    }
}

/// A Connect error from envd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpcError {
    /// Connect's name for it, such as `not_found`.
    pub code: String,
    pub message: String,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot connect to {url}")]
    Unreachable {
        url: String,
        #[source]
        source: io::Error,
    },
    #[error("no secure connection to {url}")]
    Tls {
        url: String,
        #[source]
        source: io::Error,
    },
    #[error("the connection to {url} broke")]
    Broken {
        url: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("{what} took longer than {} s", limit.as_secs())]
    Timeout { what: &'static str, limit: Duration },
    #[error("{} ({})", .0.message, .0.status.as_u16())]
    Api(ApiError),
    #[error("{}", if .0.message.is_empty() { &.0.code } else { &.0.message })]
    Rpc(RpcError),
    /// The server's proxy has no such running sandbox.
    #[error("sandbox {id} is not running")]
    SandboxGone { id: String },
    /// The stream ended without its last frame: the process's fate is unknown.
    #[error("the stream from sandbox {id} was cut off")]
    Cut { id: String },
    #[error("the server's answer makes no sense: {what}")]
    Protocol { what: String },
    #[error("the system's root certificates cannot be used")]
    Roots(#[source] io::Error),
    /// Local data that was to be uploaded could not be read.
    #[error("cannot read the data to send")]
    Source(#[source] io::Error),
}

impl Error {
    pub(crate) fn protocol(what: impl Into<String>) -> Self {
        Self::Protocol { what: what.into() }
    }

    pub fn is_not_found(&self) -> bool {
        match self {
            Self::Api(api) => api.status == StatusCode::NOT_FOUND,
            Self::Rpc(rpc) => rpc.code == "not_found",
            Self::SandboxGone { .. } => true,
            _ => false,
        }
    }

    /// The sandbox runs, and nothing listens on the port.
    pub fn is_closed_port(&self) -> bool {
        matches!(self, Self::Api(api) if api.status == StatusCode::BAD_GATEWAY
            && api.message.contains("port is not open"))
    }

    /// What was asked for cannot be done in the state that things are in.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Api(api) if api.status == StatusCode::CONFLICT)
    }

    /// The Connect code, when envd gave one.
    pub fn rpc_code(&self) -> Option<&str> {
        match self {
            Self::Rpc(rpc) => Some(&rpc.code),
            _ => None,
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Unreachable { source, .. } => match source.kind() {
                io::ErrorKind::ConnectionRefused => {
                    "is `soulbox serve` running there? The address comes from --api-url, \
                     SOULBOX_API_URL, E2B_API_URL or the data folder's `env` file"
                }
                _ => {
                    "check the address (--api-url, SOULBOX_API_URL or E2B_API_URL) and the network"
                }
            },
            Self::Tls { .. } | Self::Roots(_) => {
                "for the server's own certificate authority, load DATA_DIR/env.tls or set \
                 SSL_CERT_FILE to DATA_DIR/tls/bundle.pem"
            }
            Self::Broken { .. } => "the server may have been restarted: try again",
            Self::Timeout { .. } => {
                "the server or the sandbox is busy or stuck: see `soulbox stats`"
            }
            Self::Api(api) => return api.hint(),
            Self::Rpc(rpc) => match rpc.code.as_str() {
                "unauthenticated" => "the user must exist in the sandbox's /etc/passwd",
                "deadline_exceeded" => "give the command more time with --timeout",
                _ => return None,
            },
            Self::SandboxGone { .. } => {
                "it is paused (`soulbox resume` wakes it), was killed, or reached its end of life \
                 (`soulbox timeout` gives a sandbox more time); `soulbox ls` shows which"
            }
            Self::Cut { .. } => {
                "the sandbox ended, or the server was restarted: then the command still runs, see \
                 `soulbox ps` and `soulbox attach`"
            }
            Self::Protocol { .. } => "is the address that of a SoulBox or E2B server?",
            Self::Source(_) => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: StatusCode, error_code: Option<&str>) -> Error {
        Error::Api(ApiError {
            status,
            code: status.as_u16().into(),
            message: "no".to_owned(),
            error_code: error_code.map(str::to_owned),
        })
    }

    #[test]
    fn only_a_server_that_says_so_is_called_full() {
        let full = refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            Some("sandbox_capacity_unavailable"),
        );
        assert!(full.hint().unwrap().contains("is full"));
        for other in [
            refusal(StatusCode::SERVICE_UNAVAILABLE, None),
            refusal(
                StatusCode::SERVICE_UNAVAILABLE,
                Some("sandbox_snapshot_guest_agent_unresponsive"),
            ),
            refusal(StatusCode::TOO_MANY_REQUESTS, None),
            refusal(StatusCode::TOO_MANY_REQUESTS, Some("secret_limit_reached")),
        ] {
            assert_eq!(other.hint(), None, "{other:?}");
        }
    }

    #[test]
    fn a_template_that_is_being_built_is_watched_and_not_made_room_for() {
        let building = refusal(StatusCode::SERVICE_UNAVAILABLE, Some("template_building"));
        let hint = building.hint().unwrap();
        assert!(
            hint.contains("soulbox template ls") && !hint.contains("soulbox kill"),
            "{hint}"
        );
    }
}
