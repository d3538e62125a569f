//! What a start is doing and about how long it still takes, for people at a terminal.
//!
//! The time that is left comes from the last start on the same data folder: the first one, which makes
//! the template `base`, has none to go by and says so.

use std::{
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::private_file;

const FILE: &str = "start.json";

#[derive(Debug)]
pub(crate) struct StartProgress {
    file: PathBuf,
    began: Instant,
    last: Option<Duration>,
    shown: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct LastStart {
    millis: u64,
}

impl StartProgress {
    pub(crate) fn begin(data_dir: &Path) -> Self {
        let file = data_dir.join(FILE);
        // Of no use when it cannot be read, and no reason not to start.
        let text = private_file::read(&file).ok().flatten();
        let last = text.and_then(|text| serde_json::from_str::<LastStart>(&text).ok());
        Self {
            file,
            began: Instant::now(),
            last: last.map(|last| Duration::from_millis(last.millis)),
            shown: io::stderr().is_terminal(),
        }
    }

    pub(crate) fn step(&self, what: &str) {
        if self.shown {
            let line = line(what, self.began.elapsed(), self.last);
            // With stderr closed nobody reads it.
            writeln!(io::stderr().lock(), "{line}").ok();
        }
    }

    pub(crate) fn done(&self) {
        let millis = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let written = serde_json::to_vec(&LastStart { millis })
            .map_err(io::Error::other)
            .and_then(|text| private_file::write(&self.file, private_file::SECRET, &text));
        if let Err(error) = written {
            tracing::debug!(%error, "how long the start took is not kept");
        }
    }
}

fn line(what: &str, passed: Duration, last: Option<Duration>) -> String {
    let left = match last {
        None => {
            "the first start here: there is no earlier one to tell how long it takes".to_owned()
        }
        Some(last) if passed < last => {
            let left = last.checked_sub(passed).unwrap_or_default();
            format!("about {:.1} s left", left.as_secs_f64())
        }
        Some(last) => format!("the last start took {:.1} s", last.as_secs_f64()),
    };
    format!(
        "starting: {what} ({:.1} s so far; {left})",
        passed.as_secs_f64()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_that_of_the_last_start() {
        let folder = tempfile::tempdir().unwrap();
        let first = StartProgress::begin(folder.path());
        assert_eq!(first.last, None);
        first.done();
        assert!(StartProgress::begin(folder.path()).last.is_some());
        let time = Duration::from_secs;
        assert_eq!(
            line("x", time(1), None),
            "starting: x (1.0 s so far; the first start here: there is no earlier one to tell how \
             long it takes)"
        );
        assert_eq!(
            line("x", time(1), Some(time(4))),
            "starting: x (1.0 s so far; about 3.0 s left)"
        );
        assert_eq!(
            line("x", time(5), Some(time(4))),
            "starting: x (5.0 s so far; the last start took 4.0 s)"
        );
    }
}
