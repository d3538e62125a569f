//! How far a run is, on stderr: one line that changes on a terminal, a line per step elsewhere.

use std::{
    io::{self, IsTerminal, Write},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use soulbox_bench::Progress;

use crate::output::printable;

/// How often a file or a pipe gets a line about the same step.
const AGAIN: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct ProgressPrinter {
    terminal: bool,
    /// What was printed last, and when.
    last: Mutex<Option<(String, Instant)>>,
}

impl ProgressPrinter {
    pub(super) fn new() -> Self {
        Self {
            terminal: io::stderr().is_terminal(),
            last: Mutex::default(),
        }
    }

    /// Takes the line away.
    pub(super) fn clear(&self) {
        if self.terminal {
            put("\r\x1b[K");
        }
    }
}

impl Progress for ProgressPrinter {
    fn step(&self, suite: &str, what: &str, done: usize, of: usize) {
        let step = format!("{suite}: {}", printable(what));
        let count = match (done, of) {
            (_, 0) => String::new(),
            (done, of) => format!(" {}/{of}", done.min(of)),
        };
        if self.terminal {
            put(&format!("\r\x1b[K{step}{count}"));
            return;
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((previous, when)) if *previous == step && (of == 0 || when.elapsed() < AGAIN) => {
                return;
            }
            Some((previous, _)) if *previous == step => put(&format!("{step}{count}\n")),
            _ => put(&format!("{step}\n")),
        }
        *last = Some((step, Instant::now()));
    }

    fn note(&self, text: &str) {
        self.clear();
        put(&format!("{}\n", printable(text)));
    }
}

fn put(text: &str) {
    let mut out = io::stderr().lock();
    // With stderr closed nobody reads it.
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .ok();
}
