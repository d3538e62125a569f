//! Prints a build's log.

use std::{
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

use soulbox_client::model::templates::BuildLogEntry;

use crate::{
    output,
    status_line::{StatusLine, time_left},
};

#[derive(Debug)]
pub(super) struct Printer {
    quiet: bool,
    colours: bool,
    /// The newest entry, when it is an error: the build may end with the same words.
    held: Option<BuildLogEntry>,
    progress: Option<Progress>,
}

/// How far the build is, below its log.
#[derive(Debug)]
struct Progress {
    line: StatusLine,
    started: Instant,
    /// What an earlier build took.
    earlier: Option<Duration>,
    /// `3/7`.
    step: String,
}

impl Printer {
    /// The log goes to stderr: the outcome alone is the command's output.
    pub(super) fn new(quiet: bool) -> Self {
        Self {
            quiet,
            colours: io::stderr().is_terminal() && output::colours_wanted(),
            held: None,
            progress: None,
        }
    }

    /// On a terminal.
    pub(super) fn with_time_left(mut self, started: Instant, earlier: Option<Duration>) -> Self {
        self.progress = Some(Progress {
            line: StatusLine::new(self.quiet),
            started,
            earlier,
            step: String::new(),
        });
        self
    }

    /// Somebody else writes.
    pub(super) fn pause_progress(&mut self) {
        if let Some(progress) = &mut self.progress {
            progress.line.clear();
        }
    }

    /// Now and then, also when nothing is logged.
    pub(super) fn tick(&mut self) {
        if let Some(progress) = &mut self.progress {
            let left = time_left(progress.started.elapsed(), progress.earlier);
            let step = &progress.step;
            let text = if step.is_empty() {
                left
            } else {
                format!("step {step}, {left}")
            };
            progress.line.set(&text);
        }
    }

    pub(super) fn entry(&mut self, entry: &BuildLogEntry) {
        self.release();
        if entry.level == "error" {
            self.held = Some(entry.clone());
        } else {
            self.print(entry);
        }
    }

    /// The log is over. `outcome` is printed elsewhere, and once is enough.
    pub(super) fn end(&mut self, outcome: Option<&str>) {
        self.held
            .take_if(|held| Some(held.message.as_str()) == outcome);
        self.release();
        self.progress = None;
    }

    fn release(&mut self) {
        if let Some(held) = self.held.take() {
            self.print(&held);
        }
    }

    fn print(&mut self, entry: &BuildLogEntry) {
        if self.quiet {
            return;
        }
        if let Some(progress) = &mut self.progress {
            progress.line.clear();
            if let Some(step) = step(&entry.message) {
                step.clone_into(&mut progress.step);
            }
        }
        for line in line(entry, self.colours).lines() {
            // With stderr closed nobody reads it.
            writeln!(io::stderr().lock(), "{line}").ok();
        }
    }
}

/// `3/7` of `[3/7] RUN x` and `CACHED [builder 3/7] RUN x`.
fn step(message: &str) -> Option<&str> {
    let message = message.strip_prefix("CACHED ").unwrap_or(message);
    let (inner, _) = message.strip_prefix('[')?.split_once(']')?;
    let step = inner.rsplit(' ').next()?;
    let (now, of) = step.split_once('/')?;
    (now.parse::<u32>().is_ok() && of.parse::<u32>().is_ok()).then_some(step)
}

/// For a file or another program.
pub(super) fn plain(entry: &BuildLogEntry) -> String {
    line(entry, false)
}

fn line(entry: &BuildLogEntry, colours: bool) -> String {
    let text: Vec<String> = without_escapes(&entry.message)
        .lines()
        .map(output::printable)
        .collect();
    let text = text.join("\n");
    if !colours {
        return text;
    }
    match entry.level.as_str() {
        "error" => return format!("\x1b[31m{text}\x1b[0m"),
        "warn" => return format!("\x1b[33m{text}\x1b[0m"),
        _ => {}
    }
    let (cached, rest) = match text.strip_prefix("CACHED ") {
        Some(rest) => ("\x1b[32mCACHED\x1b[0m ", rest),
        None => ("", text.as_str()),
    };
    match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((step, rest)) => format!("{cached}\x1b[36m[{step}]\x1b[0m{rest}"),
        None => format!("{cached}{rest}"),
    }
}

/// Colours of the tools that ran: the line's own count more, and the rest could steer a terminal.
fn without_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\x1b' {
            plain.push(character);
            continue;
        }
        if characters.next() == Some('[') {
            // Parameters, then one letter.
            for parameter in characters.by_ref() {
                if ('@'..='~').contains(&parameter) {
                    break;
                }
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(level: &str, message: &str) -> BuildLogEntry {
        BuildLogEntry {
            timestamp: String::new(),
            message: message.to_owned(),
            level: level.to_owned(),
            step: None,
        }
    }

    #[test]
    fn steps_stand_out_on_a_terminal_and_nowhere_else() {
        let log = entry("info", "CACHED [builder 1/2] RUN x");
        assert_eq!(line(&log, false), "CACHED [builder 1/2] RUN x");
        assert_eq!(
            line(&log, true),
            "\x1b[32mCACHED\x1b[0m \x1b[36m[builder 1/2]\x1b[0m RUN x"
        );
        assert_eq!(line(&entry("error", "no"), true), "\x1b[31mno\x1b[0m");
    }

    #[test]
    fn the_step_is_read_from_the_log() {
        for (message, expected) in [
            ("[3/7] RUN x", Some("3/7")),
            ("CACHED [builder 1/2] RUN x", Some("1/2")),
            ("[base] FROM x", None),
            ("output [1/2]", None),
        ] {
            assert_eq!(step(message), expected, "{message}");
        }
    }

    #[test]
    fn what_a_build_prints_cannot_steer_the_terminal() {
        let log = entry("info", "\x1b[31mred\x1b[0m \x1b[2Jx\x1b]0;title\x07 y\r");
        assert_eq!(line(&log, false), "red x0;title\\u{7} y\\r");
    }
}
