//! What a caller is told, in no protocol's words.

use std::{borrow::Cow, fmt, time::Duration};

use super::ErrorCode;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub code: ErrorCode,
    /// What is wrong.
    pub message: Cow<'static, str>,
    /// What to do, if that is known. One that begins with a capital is a sentence of its own.
    pub hint: Option<Cow<'static, str>>,
    /// How soon trying again may help, for codes that are [retryable](ErrorCode::is_retryable).
    pub retry_after: Option<Duration>,
}

impl Problem {
    pub fn new(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
            retry_after: None,
        }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }
}

/// On one line: what is wrong, then what to do.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            None => Ok(()),
            Some(hint) if hint.starts_with(char::is_uppercase) => write!(f, ". {hint}"),
            Some(hint) => write!(f, ": {hint}"),
        }
    }
}
