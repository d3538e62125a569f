pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Something that the file says and we cannot do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct Error {
    /// Counted from 1; where the instruction begins.
    pub line: u32,
    /// For the user, with a way out where there is one.
    pub reason: String,
}

impl Error {
    pub(crate) fn new(line: u32, reason: impl Into<String>) -> Self {
        Self {
            line,
            reason: reason.into(),
        }
    }
}
