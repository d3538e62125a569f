//! How a process ended, in the shell's terms.

use serde::{Deserialize, Serialize};

/// envd reports signals by description, as Go prints them.
const SIGNALS: &[(&str, u8)] = &[
    ("hangup", 1),
    ("interrupt", 2),
    ("quit", 3),
    ("illegal instruction", 4),
    ("trace/breakpoint trap", 5),
    ("aborted", 6),
    ("bus error", 7),
    ("floating point exception", 8),
    ("killed", 9),
    ("user defined signal 1", 10),
    ("segmentation fault", 11),
    ("user defined signal 2", 12),
    ("broken pipe", 13),
    ("alarm clock", 14),
    ("terminated", 15),
    ("stack fault", 16),
    ("cpu time limit exceeded", 24),
    ("file size limit exceeded", 25),
    ("bad system call", 31),
];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct End {
    #[serde(default)]
    pub exit_code: i32,
    /// `false`: ended by a signal.
    #[serde(default)]
    pub exited: bool,
    #[serde(default)]
    pub status: String,
    #[serde(default)]
    pub error: Option<String>,
}

impl End {
    /// What a shell would report in `$?`: the exit status, or 128 and the signal's number.
    pub fn shell_status(&self) -> u8 {
        if let Some(signal) = self.signal() {
            return 128 + signal;
        }
        // The low byte is all that a status has.
        u8::try_from(self.exit_code & 0xff).unwrap_or(u8::MAX)
    }

    pub fn signal(&self) -> Option<u8> {
        let description = self.status.strip_prefix("signal: ")?;
        let description = description
            .strip_suffix(" (core dumped)")
            .unwrap_or(description);
        let by_name = SIGNALS.iter().find(|(name, _)| *name == description);
        let by_number = || description.trim_start_matches("signal ").parse().ok();
        by_name
            .map(|(_, number)| *number)
            .or_else(by_number)
            .filter(|number| *number < 128)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(text: &str) -> End {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_missing_exit_code_is_zero() {
        assert_eq!(
            end(r#"{"exited":true,"status":"exit status 0"}"#).shell_status(),
            0
        );
    }

    #[test]
    fn exit_codes_pass_through() {
        let text = r#"{"exitCode":42,"exited":true,"status":"exit status 42","error":"x"}"#;
        assert_eq!(end(text).shell_status(), 42);
    }

    #[test]
    fn signals_become_128_and_their_number() {
        let status =
            |text: &str| end(&format!(r#"{{"exitCode":-1,"status":"{text}"}}"#)).shell_status();
        assert_eq!(status("signal: killed"), 137);
        assert_eq!(status("signal: terminated"), 143);
        assert_eq!(status("signal: segmentation fault (core dumped)"), 139);
        assert_eq!(status("signal: signal 34"), 162);
        assert_eq!(status("signal: 34"), 162);
        assert_eq!(status("something new"), 255);
    }
}
