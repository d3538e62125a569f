//! The output of our own scripts: logged only when they fail, except lines for the user.

use std::collections::VecDeque;

use crate::step_log::StepLog;

/// Lines for the user begin with this.
const USER_PREFIX: &str = "soulbox: ";
const LONGEST_LINE: usize = 1 << 10;
const KEPT: usize = 30;

pub(super) struct ScriptLog<'a> {
    step_log: &'a StepLog,
    partial: Vec<u8>,
    last: VecDeque<String>,
}

impl<'a> ScriptLog<'a> {
    pub(super) fn new(step_log: &'a StepLog) -> Self {
        Self {
            step_log,
            partial: Vec::new(),
            last: VecDeque::new(),
        }
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'\n' | b'\r' => self.end_line(),
                _ if self.partial.len() < LONGEST_LINE => self.partial.push(*byte),
                _ => {}
            }
        }
    }

    fn end_line(&mut self) {
        let bytes = std::mem::take(&mut self.partial);
        let line = String::from_utf8_lossy(&bytes);
        if let Some(message) = line.strip_prefix(USER_PREFIX) {
            self.step_log.info(message);
        } else if !line.trim().is_empty() {
            self.last.push_back(line.into_owned());
            if self.last.len() > KEPT {
                self.last.pop_front();
            }
        }
    }

    /// After a failure.
    pub(super) fn show(mut self) {
        self.end_line();
        for line in &self.last {
            self.step_log.info(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::step_log::tests::Lines;

    #[test]
    fn the_end_is_shown_only_after_a_failure_and_what_is_told_at_once() {
        let lines = Arc::new(Lines::default());
        let step_log = StepLog::new(lines.clone(), "base", "base");
        let mut script_log = ScriptLog::new(&step_log);
        script_log.add(b"noise\nsoulbox: installing bash\n");
        for number in 0..100 {
            script_log.add(format!("line {number}\n").as_bytes());
        }
        assert_eq!(*lines.0.lock(), ["[base] installing bash"]);
        script_log.add(b"why");
        script_log.show();
        let lines = lines.0.lock();
        assert_eq!(lines.len(), 1 + KEPT);
        assert_eq!(lines[1], "[base] line 71");
        assert_eq!(*lines.last().unwrap(), "[base] why");
    }
}
