use std::{io, time::Duration};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why envd did not do what was asked. Callers branch on the variant.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the sandbox cannot be reached")]
    Unreachable(#[source] soulbox_runtime::Error),
    /// envd's own words, cut to a bounded length. `code` is Connect's (`unauthenticated`,
    /// `not_found`); a plain route's status is put into the same terms.
    #[error("{code}: {message}")]
    Refused { code: String, message: String },
    /// The sandbox ended, or envd in it.
    #[error("the sandbox broke off while {what}")]
    CutOff {
        what: &'static str,
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    #[error("{what} took longer than {} s", limit.as_secs_f64())]
    TooSlow { what: &'static str, limit: Duration },
    /// What answers inside does not speak as envd does.
    #[error("the sandbox answered with something unexpected: {0}")]
    Protocol(String),
    /// The archive that was to be copied in could not be read here, on the host.
    #[error("the archive cannot be read")]
    Archive(#[source] io::Error),
}

impl Error {
    /// Connect's code, when envd refused.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { code, .. } => Some(code),
            _ => None,
        }
    }

    pub(crate) fn cut(
        what: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::CutOff {
            what,
            source: Some(source.into()),
        }
    }

    #[expect(
        clippy::needless_pass_by_value,
        reason = "errors are handed over, by map_err"
    )]
    pub(crate) fn protocol(what: impl ToString) -> Self {
        Self::Protocol(clip(&what.to_string()))
    }

    pub(crate) fn refused(code: &str, message: &str) -> Self {
        Self::Refused {
            code: clip(code),
            message: clip(message),
        }
    }
}

/// Texts from inside go into logs and answers.
fn clip(text: &str) -> String {
    const LONGEST: usize = 4 << 10;
    text.get(..text.floor_char_boundary(LONGEST))
        .unwrap_or_default()
        .to_owned()
}
