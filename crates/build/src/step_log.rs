//! The lines of a build's log, in E2B's shapes.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use soulbox_envd_client::OutputStream;
use soulbox_runtime::LogLevel;

use crate::BuildLog;

/// A line is for people; what is longer is cut.
const LONGEST_LINE: usize = 4 << 10;
/// Of one step. A command that prints for ever must not fill the disk.
const MOST_OUTPUT: u64 = 4 << 20;

/// The log of one step: `prefix` is `base`, `builder 1/3` or `finalize`.
#[derive(Debug, Clone)]
pub(crate) struct StepLog {
    log: Arc<dyn BuildLog>,
    step: Arc<str>,
    prefix: Arc<str>,
}

impl StepLog {
    pub(crate) fn new(log: Arc<dyn BuildLog>, step: &str, prefix: &str) -> Self {
        Self {
            log,
            step: step.into(),
            prefix: prefix.into(),
        }
    }

    /// `[builder 1/3] RUN make [0123abcd]`, with `CACHED` in front when nothing is run.
    pub(crate) fn begins(&self, what: &str, key: &str, cached: bool) {
        let cached = if cached { "CACHED " } else { "" };
        self.put(
            LogLevel::Info,
            &format!("{cached}[{}] {what} [{key}]", self.prefix),
        );
    }

    pub(crate) fn info(&self, message: &str) {
        self.put(LogLevel::Info, &format!("[{}] {message}", self.prefix));
    }

    pub(crate) fn warn(&self, message: &str) {
        self.put(LogLevel::Warn, &format!("[{}] {message}", self.prefix));
    }

    /// For what a command prints.
    pub(crate) fn output(&self) -> Output {
        Output {
            step_log: self.clone(),
            stdout: Vec::new(),
            stderr: Vec::new(),
            written: Arc::default(),
        }
    }

    fn put(&self, level: LogLevel, message: &str) {
        self.log.line(level, Some(&self.step), &readable(message));
    }
}

/// Splits streamed output into lines.
#[derive(Debug)]
pub(crate) struct Output {
    step_log: StepLog,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    written: Arc<AtomicU64>,
}

impl Output {
    pub(crate) fn add(&mut self, stream: OutputStream, bytes: &[u8]) {
        let (partial, name) = match stream {
            OutputStream::Stdout => (&mut self.stdout, "stdout"),
            OutputStream::Stderr => (&mut self.stderr, "stderr"),
        };
        for part in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let (text, ends) = match part.split_last() {
                Some((b'\n' | b'\r', text)) => (text, true),
                _ => (part, false),
            };
            let left = LONGEST_LINE.saturating_sub(partial.len());
            partial.extend_from_slice(&text[..text.len().min(left)]);
            if ends {
                let line = std::mem::take(partial);
                put(&self.step_log, &self.written, name, &line);
            }
        }
    }
}

impl Drop for Output {
    /// The last line may have no end.
    fn drop(&mut self) {
        put(&self.step_log, &self.written, "stdout", &self.stdout);
        put(&self.step_log, &self.written, "stderr", &self.stderr);
    }
}

fn put(step_log: &StepLog, written: &AtomicU64, stream: &str, line: &[u8]) {
    // `\r\n`, and programs that draw over their own line.
    if line.is_empty() {
        return;
    }
    let before = written.fetch_add(line.len() as u64, Ordering::Relaxed);
    if before >= MOST_OUTPUT {
        return;
    }
    let text = String::from_utf8_lossy(line);
    step_log.info(&format!("[{stream}]: {text}"));
    if before + line.len() as u64 >= MOST_OUTPUT {
        let most = MOST_OUTPUT >> 20;
        step_log.warn(&format!("what is printed after {most} MiB is not logged"));
    }
}

/// Cut, and without characters that do something to a terminal or a line. Colours may stay: the
/// clients know them.
fn readable(message: &str) -> String {
    let end = message.floor_char_boundary(LONGEST_LINE + 256);
    message[..end]
        .chars()
        .map(|character| match character {
            '\t' | '\u{1b}' => character,
            '\n' | '\r' => ' ',
            other if other.is_control() => '\u{fffd}',
            other => other,
        })
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[derive(Debug, Default)]
    pub(crate) struct Lines(pub(crate) Mutex<Vec<String>>);

    impl BuildLog for Lines {
        fn line(&self, _level: LogLevel, _step: Option<&str>, message: &str) {
            self.0.lock().push(message.to_owned());
        }
    }

    fn lines(act: impl FnOnce(&StepLog)) -> Vec<String> {
        let lines = Arc::new(Lines::default());
        act(&StepLog::new(lines.clone(), "1", "builder 1/3"));
        std::mem::take(&mut lines.0.lock())
    }

    #[test]
    fn steps_begin_in_e2bs_words() {
        let lines = lines(|step_log| {
            step_log.begins("RUN make", "0123abcd", false);
            step_log.begins("RUN make", "0123abcd", true);
        });
        assert_eq!(
            lines,
            [
                "[builder 1/3] RUN make [0123abcd]",
                "CACHED [builder 1/3] RUN make [0123abcd]"
            ]
        );
    }

    #[test]
    fn output_is_logged_by_line_wherever_it_was_cut() {
        let lines = lines(|step_log| {
            let mut output = step_log.output();
            output.add(OutputStream::Stdout, b"one\r\ntw");
            output.add(OutputStream::Stderr, b"bad\n\n");
            output.add(OutputStream::Stdout, b"o\n10%\r20%");
        });
        assert_eq!(
            lines,
            [
                "[builder 1/3] [stdout]: one",
                "[builder 1/3] [stderr]: bad",
                "[builder 1/3] [stdout]: two",
                "[builder 1/3] [stdout]: 10%",
                "[builder 1/3] [stdout]: 20%"
            ]
        );
    }

    #[test]
    fn strange_bytes_and_endless_lines_are_tamed() {
        let lines = lines(|step_log| {
            let mut output = step_log.output();
            output.add(OutputStream::Stdout, b"a\0\xff\x07b\n");
            for _ in 0..100 {
                output.add(OutputStream::Stdout, &[b'x'; 1000]);
            }
            output.add(OutputStream::Stdout, b"\nnext\n");
        });
        assert_eq!(
            lines[0],
            "[builder 1/3] [stdout]: a\u{fffd}\u{fffd}\u{fffd}b"
        );
        assert!(lines[1].len() < 5000);
        assert_eq!(lines[2], "[builder 1/3] [stdout]: next");
    }

    #[test]
    fn output_without_end_is_not_logged_without_end() {
        let lines = lines(|step_log| {
            let mut output = step_log.output();
            for _ in 0..10_000 {
                output.add(OutputStream::Stdout, &[b'y'; 1000]);
                output.add(OutputStream::Stdout, b"\n");
            }
        });
        assert!(lines.len() < 4200);
        assert!(lines.last().unwrap().contains("not logged"));
    }
}
