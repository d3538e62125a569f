//! The user's terminal: its size, and raw mode that is always taken back.

use std::{
    io::{self, IsTerminal},
    sync::{Mutex, Once, PoisonError},
};

use rustix::{
    stdio::{stdin, stdout},
    termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr},
};
use soulbox_client::envd::process::PtySize;

const USUAL_SIZE: PtySize = PtySize { cols: 80, rows: 24 };

/// The settings to go back to, while raw mode is on. Global, because a panic has to find them.
static SAVED: Mutex<Option<Termios>> = Mutex::new(None);
static PANIC_HOOK: Once = Once::new();

/// Raw mode for as long as this lives, or until a panic.
#[derive(Debug)]
pub(crate) struct RawMode(());

impl RawMode {
    pub(crate) fn enter() -> io::Result<Self> {
        let before = tcgetattr(stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        let guard = Self(());
        change(before, &raw)?;
        Ok(guard)
    }
}

/// What is typed is not shown for as long as this lives, or until a panic.
#[derive(Debug)]
pub(crate) struct Silence(());

impl Silence {
    pub(crate) fn enter() -> io::Result<Self> {
        quieten(LocalModes::ECHO)?;
        Ok(Self(()))
    }

    /// Each key is read as it is typed; Ctrl-C stays a signal. Without a terminal nothing is changed.
    pub(crate) fn of_keys() -> Option<Self> {
        quieten(LocalModes::ECHO | LocalModes::ICANON).ok()?;
        Some(Self(()))
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        restore();
    }
}

fn quieten(modes: LocalModes) -> io::Result<()> {
    let before = tcgetattr(stdin())?;
    let mut silent = before.clone();
    silent.local_modes.remove(modes);
    change(before, &silent)
}

/// Remembers what to go back to first.
fn change(before: Termios, to: &Termios) -> io::Result<()> {
    // The message of a panic must be readable, and the shell after it usable.
    PANIC_HOOK.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            report(panic);
        }));
    });
    *SAVED.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
    Ok(tcsetattr(stdin(), OptionalActions::Drain, to)?)
}

impl Drop for RawMode {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    let saved = SAVED.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = saved {
        // A terminal that is gone needs nothing.
        tcsetattr(stdin(), OptionalActions::Flush, &before).ok();
    }
}

pub(crate) fn size() -> PtySize {
    match tcgetwinsize(stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => PtySize {
            cols: size.ws_col,
            rows: size.ws_row,
        },
        _ => USUAL_SIZE,
    }
}

/// What programs inside should take it for.
pub(crate) fn kind() -> String {
    crate::context::variable("TERM").unwrap_or_else(|| "xterm-256color".to_owned())
}

/// Whether a person sits on both ends.
pub(crate) fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restoring_twice_is_harmless() {
        restore();
        restore();
        assert!(SAVED.lock().unwrap().is_none());
    }
}
