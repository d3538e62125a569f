//! Questions to a person, and keys from a place that others cannot read.

use std::io::{self, BufRead, IsTerminal, Read, Write};

use anyhow::{Context, Result};
use rustix::{
    stdio::stdin,
    termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr},
};
use soulbox_types::Secret;

use crate::{interrupts::Interrupts, report::advice, sandbox::Interrupted};

const LONGEST: u64 = 4096;

/// `None`: nobody is there to answer. These block: nothing else goes on meanwhile.
pub(crate) fn yes(question: &str) -> Result<Option<bool>> {
    if !io::stdin().is_terminal() {
        return Ok(None);
    }
    prompt(&format!("{question} [y/N] "))?;
    let mut answer = String::new();
    io::stdin().lock().take(LONGEST).read_line(&mut answer)?;
    let answer = answer.trim().to_ascii_lowercase();
    Ok(Some(answer == "y" || answer == "yes"))
}

/// Typed without an echo, or all of standard input when that is no terminal.
pub(crate) async fn key(question: &str) -> Result<Secret> {
    let silent = if io::stdin().is_terminal() {
        let silent = Silent::begin()?;
        prompt(question)?;
        Some(silent)
    } else {
        None
    };
    let is_typed = silent.is_some();
    // A read cannot be interrupted; the thread ends with the program.
    let reading = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        let mut input = io::stdin().lock().take(LONGEST);
        if is_typed {
            input.read_line(&mut text)?;
        } else {
            input.read_to_string(&mut text)?;
        }
        io::Result::Ok(text)
    });
    let mut interrupts = Interrupts::listen()?;
    let text = tokio::select! {
        text = reading => text??,
        code = interrupts.next() => return Err(Interrupted(code).into()),
    };
    if silent.is_some() {
        eprintln!();
    }
    checked(&text)
}

/// The terminal shows nothing of what is typed for as long as this lives.
struct Silent {
    before: Termios,
}

impl Silent {
    fn begin() -> io::Result<Self> {
        let before = tcgetattr(stdin())?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(stdin(), OptionalActions::Flush, &silent)?;
        Ok(Self { before })
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        tcsetattr(stdin(), OptionalActions::Flush, &self.before).ok();
    }
}

pub(crate) fn key_from(path: &std::path::Path) -> Result<Secret> {
    let open = || format!("cannot read the key from {}", path.display());
    let mut text = String::new();
    let file = std::fs::File::open(path).with_context(open)?;
    file.take(LONGEST)
        .read_to_string(&mut text)
        .with_context(open)?;
    checked(&text)
}

fn checked(text: &str) -> Result<Secret> {
    let key = text.trim();
    if key.is_empty() || key.contains(char::is_whitespace) {
        let hint = "a key is one word, such as e2b_…; `soulbox key create NAME` makes one";
        return Err(advice("that is not an API key", hint));
    }
    Ok(Secret::new(key))
}

fn prompt(text: &str) -> Result<()> {
    let mut out = io::stderr().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}
