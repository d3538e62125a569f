//! Errors for people: what happened, why, and what to do.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal, Write},
    process::ExitCode,
};

use soulbox_client::config::ConfigError;
use soulbox_types::Chain;

use crate::{context::Absent, output};

/// An error of ours that knows what to do about it.
#[derive(Debug)]
pub(crate) struct Advice {
    pub message: String,
    pub hint: String,
}

impl std::fmt::Display for Advice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Advice {}

pub(crate) fn advice(message: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
    Advice {
        message: message.into(),
        hint: hint.into(),
    }
    .into()
}

/// Prints an error and says what to exit with.
pub(crate) fn failure(error: &anyhow::Error, code: u8) -> ExitCode {
    if output::is_broken_pipe(error) {
        // Whoever read our output has seen enough; a shell would report SIGPIPE.
        return ExitCode::from(128 + 13);
    }
    print(error);
    ExitCode::from(code)
}

pub(crate) fn print(error: &anyhow::Error) {
    let mut text = format!("{} {}", label("error:", "31"), lines(&chain(error)));
    if let Some(hint) = hint_of(error) {
        // Writing to a String cannot fail.
        write!(text, "\n{} {}", label("hint:", "36"), lines(&hint)).ok();
    }
    line(&text);
}

/// Messages that quote a file have several lines; indented, so that none can pass for
/// another message.
fn lines(text: &str) -> String {
    let shown: Vec<String> = text.trim_end().lines().map(output::printable).collect();
    shown.join("\n  ")
}

/// An error that needs no exit code of ours.
pub(crate) fn complaint(message: &str) {
    line(&format!(
        "{} {}",
        label("error:", "31"),
        output::printable(message)
    ));
}

pub(crate) fn warning(message: &str) {
    line(&format!(
        "{} {}",
        label("warning:", "33"),
        output::printable(message)
    ));
}

/// What to do about something that another program said.
pub(crate) fn hint(message: &str) {
    line(&format!(
        "{} {}",
        label("hint:", "36"),
        output::printable(message)
    ));
}

/// Something to know that is not the command's output.
pub(crate) fn note(message: &str) {
    line(&output::printable(message));
}

fn line(text: &str) {
    // With stderr closed nobody reads it.
    writeln!(io::stderr().lock(), "{text}").ok();
}

fn label(text: &str, colour: &str) -> String {
    if io::stderr().is_terminal() && output::colours_wanted() {
        format!("\x1b[1;{colour}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

/// The whole chain on one line.
fn chain(error: &anyhow::Error) -> String {
    Chain(error.as_ref()).to_string()
}

fn hint_of(error: &anyhow::Error) -> Option<String> {
    error.chain().find_map(|cause| {
        if let Some(advice) = cause.downcast_ref::<Advice>() {
            return Some(advice.hint.clone());
        }
        if let Some(absent) = cause.downcast_ref::<Absent>() {
            return Some(absent.hint.clone());
        }
        if let Some(error) = cause.downcast_ref::<soulbox_client::Error>() {
            return error.hint().map(str::to_owned);
        }
        if let Some(error) = cause.downcast_ref::<soulbox_trust::Error>() {
            return error.hint().map(str::to_owned);
        }
        cause
            .downcast_ref::<ConfigError>()
            .map(|error| error.hint().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn several_lines_stay_several_lines_and_control_characters_are_shown() {
        assert_eq!(
            lines("TOML error\n  |\nhint: \x1b[2J\n"),
            "TOML error\n    |\n  hint: \\u{1b}[2J"
        );
    }

    #[test]
    fn the_chain_is_told_once_and_the_innermost_hint_survives_context() {
        let error = Err::<(), _>(advice("no such thing", "look elsewhere"))
            .context("cannot do it")
            .unwrap_err();
        assert_eq!(chain(&error), "cannot do it: no such thing");
        assert_eq!(hint_of(&error).as_deref(), Some("look elsewhere"));
    }
}
