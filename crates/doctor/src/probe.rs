//! What happens in the copy of the program: one question, answered on standard output.
//!
//! The copy has a single thread and is thrown away, so it may enter namespaces and load filters.

mod filesystem;
mod filter;
mod guest;
mod namespaces;
mod network;

use std::{path::PathBuf, process::ExitCode};

/// Where a probe may put files, from its parent.
pub(crate) const SCRATCH_VARIABLE: &str = "SOULBOX_DOCTOR_SCRATCH";
/// The first line of every answer: a program that does not know the subcommand prints another.
pub(crate) const GREETING: &str = "soulbox-doctor\n";
/// Name of the formatted image in the scratch directory.
pub(crate) const IMAGE: &str = "image";

type Answer = Result<String, String>;

/// Serves the hidden subcommand `doctor-probe <name>`. Call it before any thread is started.
pub fn probe(name: &str) -> ExitCode {
    let scratch = std::env::var_os(SCRATCH_VARIABLE).map(PathBuf::from);
    let answer = match (name, scratch) {
        (_, None) => Err("this is a part of `soulbox doctor`".to_owned()),
        ("namespaces", _) => namespaces::all(),
        ("overlay", Some(dir)) => filesystem::overlay(&dir, true),
        ("overlay-read-only", Some(dir)) => filesystem::overlay(&dir, false),
        ("disk", Some(dir)) => filesystem::disk(&dir),
        ("device", Some(dir)) => filesystem::device(&dir),
        ("nftables", _) => network::nftables(),
        ("network", _) => network::veth(),
        ("seccomp", _) => filter::seccomp(),
        ("kvm", _) => guest::run(),
        _ => Err("no such probe".to_owned()),
    };
    let (text, code) = match answer {
        Ok(text) => (text, ExitCode::SUCCESS),
        Err(text) => (text, ExitCode::FAILURE),
    };
    print!("{GREETING}{text}");
    code
}

/// Says which step failed.
trait Step<T> {
    fn step(self, what: &str) -> Result<T, String>;
}

impl<T, E: std::fmt::Display> Step<T> for Result<T, E> {
    fn step(self, what: &str) -> Result<T, String> {
        self.map_err(|error| format!("{what}: {error}"))
    }
}
