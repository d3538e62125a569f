//! How far a run is, on stderr: one line that changes on a terminal, a line per step elsewhere.

use std::{
    io::{self, IsTerminal, Write},
    sync::{Mutex, PoisonError},
};

use soulbox_bench::Progress;

use crate::output::printable;

#[derive(Debug)]
pub(super) struct Shown {
    terminal: bool,
    /// What was told last, so that it is told once.
    last: Mutex<String>,
}

impl Shown {
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

impl Progress for Shown {
    fn step(&self, suite: &str, what: &str, done: usize, of: usize) {
        let step = format!("{suite}: {}", printable(what));
        if self.terminal {
            let count = match (done, of) {
                (_, 0) => String::new(),
                (done, of) => format!(" {}/{of}", done.min(of)),
            };
            put(&format!("\r\x1b[K{step}{count}"));
            return;
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if *last != step {
            put(&format!("{step}\n"));
            *last = step;
        }
    }

    fn note(&self, text: &str) {
        self.clear();
        put(&format!("{}\n", printable(text)));
    }
}

fn put(text: &str) {
    let mut out = io::stderr().lock();
    // With stderr closed there is nobody to tell.
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .ok();
}
