//! One line on the terminal that says how far something is, and goes when it is done.

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use crate::{output, output::units, terminal};

/// Nothing is shown where stderr is no terminal.
#[derive(Debug)]
pub(crate) struct StatusLine {
    wanted: bool,
    shown: bool,
}

impl StatusLine {
    pub(crate) fn new(quiet: bool) -> Self {
        Self {
            wanted: !quiet && io::stderr().is_terminal(),
            shown: false,
        }
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Over what was there.
    pub(crate) fn set(&mut self, text: &str) {
        if !self.wanted {
            return;
        }
        let width = usize::from(terminal::size().cols).saturating_sub(1);
        let text: String = output::printable(text).chars().take(width).collect();
        write(&text);
        self.shown = true;
    }

    /// Before anything else is printed.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            write("");
        }
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        self.clear();
    }
}

fn write(text: &str) {
    let mut err = io::stderr().lock();
    // Without a terminal to write to there is nothing to show.
    write!(err, "\r\x1b[K{text}")
        .and_then(|()| err.flush())
        .ok();
}

/// How long it will still take, by what earlier ones took. Nothing is made up: without an earlier
/// one only the time that has passed is known.
pub(crate) fn time_left(passed: Duration, earlier: Option<Duration>) -> String {
    let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let so_far = units::precisely(seconds(passed));
    match earlier {
        None => format!("{so_far} so far; there is no earlier one to tell how long it takes"),
        Some(earlier) if passed < earlier => {
            let left = units::precisely(seconds(earlier.checked_sub(passed).unwrap_or_default()));
            format!("{so_far} so far, about {left} left")
        }
        Some(earlier) => {
            let before = units::precisely(seconds(earlier));
            format!("{so_far} so far; the last one took {before}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_only_where_an_earlier_one_tells() {
        let time = Duration::from_secs;
        assert_eq!(
            time_left(time(12), None),
            "12 s so far; there is no earlier one to tell how long it takes"
        );
        assert_eq!(
            time_left(time(12), Some(time(212))),
            "12 s so far, about 3 min 20 s left"
        );
        assert_eq!(
            time_left(time(60), Some(time(50))),
            "60 s so far; the last one took 50 s"
        );
    }
}
