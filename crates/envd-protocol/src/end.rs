//! How a process ended: in E2B's words, and in a shell's terms.

use crate::process::EndEvent;

const SIGNAL: &str = "signal: ";
/// What Go's `syscall.Signal` prints, from 1 on: E2B's users know these words. Others are
/// `signal` and their number.
const NAMES: [&str; 15] = [
    "hangup",
    "interrupt",
    "quit",
    "illegal instruction",
    "trace/breakpoint trap",
    "aborted",
    "bus error",
    "floating point exception",
    "killed",
    "user defined signal 1",
    "segmentation fault",
    "user defined signal 2",
    "broken pipe",
    "alarm clock",
    "terminated",
];

pub fn signal_name(signal: i32) -> String {
    let index = usize::try_from(signal).ok().and_then(|n| n.checked_sub(1));
    match index.and_then(|index| NAMES.get(index)) {
        Some(name) => (*name).to_owned(),
        None => format!("signal {signal}"),
    }
}

impl EndEvent {
    pub fn by_code(code: i32) -> Self {
        let status = format!("exit status {code}");
        Self {
            exit_code: code,
            exited: true,
            error: (code != 0).then(|| status.clone()),
            status,
        }
    }

    pub fn by_signal(signal: i32) -> Self {
        let status = format!("{SIGNAL}{}", signal_name(signal));
        Self {
            exit_code: -1,
            exited: false,
            error: Some(status.clone()),
            status,
        }
    }

    /// Whatever ended a process that did not exit, without the word that comes before it.
    pub fn cause(&self) -> &str {
        self.status.strip_prefix(SIGNAL).unwrap_or(&self.status)
    }

    /// What a shell would report in `$?`: the exit status, or 128 and the signal's number.
    pub fn shell_status(&self) -> u8 {
        if let Some(signal) = self.signal() {
            return 128 + signal;
        }
        // The low byte is all that a status has.
        self.exit_code.to_le_bytes()[0]
    }

    pub fn signal(&self) -> Option<u8> {
        let name = self.status.strip_prefix(SIGNAL)?;
        let name = name.strip_suffix(" (core dumped)").unwrap_or(name);
        let number = match NAMES.iter().position(|known| *known == name) {
            Some(index) => u8::try_from(index + 1).ok(),
            None => name.trim_start_matches("signal ").parse().ok(),
        };
        number.filter(|number| *number < 128)
    }
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    fn end(text: &str) -> EndEvent {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn exits_read_as_the_sdks_expect() {
        let ok = EndEvent::by_code(0);
        assert_eq!(
            (ok.exited, ok.status.as_str(), ok.error),
            (true, "exit status 0", None)
        );
        let failed = EndEvent::by_code(3);
        assert_eq!(
            (failed.exit_code, failed.error.as_deref()),
            (3, Some("exit status 3"))
        );
        let killed = EndEvent::by_signal(9);
        assert_eq!((killed.exit_code, killed.exited), (-1, false));
        assert_eq!(killed.status, "signal: killed");
    }

    #[test]
    fn a_missing_exit_code_is_zero() {
        let end = end(r#"{"exited":true,"status":"exit status 0"}"#);
        assert_eq!(end.shell_status(), 0);
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

    #[test]
    fn every_signal_is_read_as_it_is_written() {
        for signal in 1..=64 {
            let read = EndEvent::by_signal(signal).signal();
            assert_eq!(read.map(i32::from), Some(signal));
        }
    }
}
