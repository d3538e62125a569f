//! The hidden subcommand: copies of the program with one thread, which may clone into namespaces.
//!
//! A copy reads what it is to do as one line of JSON on standard input, and ends when its input
//! does: whoever started it need not be alive to clean up.
//!
//! # Layout
//! - [`clone`]: the least that a sandbox costs, round by round
//! - [`daemon`]: a Docker daemon in namespaces of its own, gone without a trace
//! - `cgroups`: the groups that such a daemon leaves behind

mod cgroups;
pub(crate) mod clone;
pub(crate) mod daemon;

use std::{
    io::{self, BufRead, Write},
    process::ExitCode,
};

use serde::de::DeserializeOwned;

/// `soulbox bench-floor <task>`.
pub const COMMAND: &str = "bench-floor";

/// Serves the hidden subcommand. Call it before any thread is started.
pub fn serve(task: &str) -> ExitCode {
    let result = match task {
        clone::TASK => clone::serve(),
        daemon::TASK => daemon::serve(),
        _ => Err(io::Error::other("this is a part of `soulbox bench`")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody may be left to read it.
            let _gone = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

fn read_spec<T: DeserializeOwned>() -> io::Result<T> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    serde_json::from_str(&line).map_err(io::Error::other)
}

/// Says which step failed.
trait Step<T> {
    fn step(self, what: &str) -> io::Result<T>;
}

impl<T, E: std::fmt::Display> Step<T> for Result<T, E> {
    fn step(self, what: &str) -> io::Result<T> {
        self.map_err(|error| io::Error::other(format!("{what}: {error}")))
    }
}
