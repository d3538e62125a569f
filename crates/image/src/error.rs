//! Errors of pulling and unpacking.

use std::{io, path::Path};

use crate::layer::LayerError;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What works without the registry that was asked for.
const OFFLINE: &str = "without a connection build from what is here (FROM template://base, \
                       `soulbox template from-host` or `from-tar`), or from a registry of your own \
                       (registry-mirror)";

/// Messages are shown to the user who asked for the image: each says what happened and, where
/// somebody can do something, what.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("image reference {reference:?}: {reason}")]
    Reference { reference: String, reason: String },
    #[error(
        "{host} is a private or local address: if this registry is yours, add \"{host}\" to \
         registry-allow in the server's configuration"
    )]
    PrivateAddress { host: String },
    /// Either it has none at all, or only private ones: which of the two is not revealed, as
    /// the name may be one of the operator's own network and the user untrusted.
    #[error(
        "{host} has no address on the internet: is the name right, and does the server have an \
         internet connection? If this registry is yours, add \"{host}\" to registry-allow in the \
         server's configuration; {OFFLINE}"
    )]
    NoPublicAddress { host: String },
    #[error(
        "{host} would be asked without encryption: if this registry is yours, add \"{host}\" to \
         registry-allow in the server's configuration"
    )]
    PlainHttp { host: String },
    #[error(
        "could not connect to {host}: {cause}; is the name right, and can the server reach it? If \
         it cannot: {OFFLINE}"
    )]
    Connect { host: String, cause: String },
    #[error("no secure connection to {host}: {cause}")]
    Tls { host: String, cause: String },
    #[error("{host}: the connection failed: {cause}")]
    Http { host: String, cause: String },
    #[error("{host} sent nothing for {seconds} s")]
    Silent { host: String, seconds: u64 },
    #[error("{what} was cut off again and again after {done} of {total} bytes: {cause}")]
    CutOff {
        what: String,
        done: u64,
        total: u64,
        cause: String,
    },
    #[error("the image was not here within {seconds} s")]
    Late { seconds: u64 },
    #[error("{host} refused the sign-in for {what}: {detail}")]
    Unauthorized {
        host: String,
        what: String,
        detail: String,
    },
    #[error("{host} does not allow access to {what}: {detail}")]
    Denied {
        host: String,
        what: String,
        detail: String,
    },
    #[error("{host} has no {what}: {detail}")]
    NotFound {
        host: String,
        what: String,
        detail: String,
    },
    #[error("{host} allows no more requests for now: {detail}; try again later or sign in")]
    RateLimited {
        host: String,
        detail: String,
        retry_after: Option<u64>,
    },
    #[error("{host} answered {status} for {what}: {detail}")]
    Status {
        host: String,
        status: u16,
        what: String,
        detail: String,
    },
    #[error("{host} redirects to somewhere that cannot be followed: {reason}")]
    Redirect { host: String, reason: String },
    #[error(
        "{what} has the digest {actual}, but {expected} was promised: it was damaged or changed"
    )]
    WrongDigest {
        what: String,
        expected: String,
        actual: String,
    },
    #[error("{what} is larger than {limit} bytes")]
    TooLarge { what: String, limit: u64 },
    #[error("{what} is not what it should be: {reason}")]
    Malformed { what: String, reason: String },
    #[error("no image for {wanted}, only for {found}")]
    Platform { wanted: String, found: String },
    #[error("layer {layer}: {source}")]
    Layer { layer: String, source: LayerError },
    #[error("{needed} bytes are needed, but only {free} are free above the reserve")]
    NoSpace { needed: u64, free: u64 },
    #[error("AWS: {0}")]
    Aws(String),
    #[error("root certificates: {0}")]
    Roots(io::Error),
    #[error("{doing} {path}: {cause}")]
    Io {
        doing: &'static str,
        path: String,
        cause: io::Error,
    },
    #[error("the work was given up")]
    GivenUp,
}

impl Error {
    /// Whether the same request may succeed a moment later.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Connect { .. }
            | Self::NoPublicAddress { .. }
            | Self::Http { .. }
            | Self::Silent { .. }
            | Self::RateLimited { .. } => true,
            Self::Status { status, .. } => matches!(status, 408 | 500 | 502 | 503 | 504),
            _ => false,
        }
    }

    /// Whether nothing was ever connected to.
    pub(crate) fn is_unreachable(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::NoPublicAddress { .. })
    }

    /// Whether another place may have what this one does not.
    pub(crate) fn is_worth_asking_elsewhere(&self) -> bool {
        self.is_transient()
            || matches!(
                self,
                Self::NotFound { .. }
                    | Self::Unauthorized { .. }
                    | Self::Denied { .. }
                    | Self::Tls { .. }
                    | Self::Status { .. }
            )
    }
}

/// Names the file in an error of the file system.
pub(crate) trait At<T> {
    fn at(self, doing: &'static str, path: &Path) -> Result<T>;
}

impl<T, E: Into<io::Error>> At<T> for std::result::Result<T, E> {
    fn at(self, doing: &'static str, path: &Path) -> Result<T> {
        self.map_err(|error| Error::Io {
            doing,
            path: path.display().to_string(),
            cause: error.into(),
        })
    }
}

/// Runs what blocks away from the runtime's threads.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        // Only when the runtime shuts down, or the work panicked and said so itself.
        Err(_) => Err(Error::GivenUp),
    }
}
