//! Commands, and how they ended.

use std::{collections::BTreeMap, fmt};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandSpec {
    /// A path, or a name that is looked for in `PATH`.
    pub program: String,
    pub args: Vec<String>,
    /// An account inside; empty: the sandbox's default.
    pub user: String,
    /// `None`: the sandbox's default.
    pub cwd: Option<String>,
    /// On top of the sandbox's own variables.
    pub env: BTreeMap<String, String>,
}

impl CommandSpec {
    /// As E2B runs commands: by a login shell.
    pub fn login_shell(script: impl Into<String>, user: impl Into<String>) -> Self {
        Self {
            program: "/bin/bash".to_owned(),
            args: vec!["-l".to_owned(), "-c".to_owned(), script.into()],
            user: user.into(),
            ..Self::default()
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    Stdout,
    Stderr,
}

/// How a process ended. Shown as E2B's users know it: `exit status 1`, `signal: killed`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessExit {
    Code(i32),
    /// By a signal; envd's words for it.
    Signal(String),
}

impl ProcessExit {
    pub fn is_success(&self) -> bool {
        *self == Self::Code(0)
    }
}

impl fmt::Display for ProcessExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit status {code}"),
            Self::Signal(name) => write!(f, "signal: {name}"),
        }
    }
}
