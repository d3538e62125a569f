//! What this machine supports, found out by trying it.
//!
//! [`run`] is `soulbox doctor`: every check does the thing that a sandbox will need and undoes it.
//! [`preflight`] is the fast part that `soulbox serve` runs before it starts.
//!
//! What would change the caller (namespaces, mounts, filters) is tried in a short-lived copy of
//! the calling program: `/proc/self/exe doctor-probe <name>`. The program's `main` must hand that
//! hidden subcommand to [`probe`] first thing, before any thread exists.
//!
//! # Layout
//! - `run`, `preflight`: which checks, in which order, and what follows for the isolation tiers
//! - `report`: outcomes, JSON and the table for people
//! - `checks`: one file per area
//! - `advice`, `environment`: what to do when a sandbox does not start, by the step that failed and
//!   by where this program runs
//! - `probe`: what happens in the copy of the program
//! - `scratch`: a folder to try things in, and what killed ones have left
//! - `child`: running a program with a time limit

mod advice;
mod checks;
mod child;
mod environment;
mod preflight;
mod probe;
mod report;
mod run;
mod scratch;

pub use advice::advice;
pub use checks::{
    sandbox::TrialResult,
    storage::{file_size_limit, free_space},
};
pub use environment::Environment;
pub use preflight::{Problem, preflight};
pub use probe::probe;
pub use report::{Check, Outcome, Report, TierReport};
pub use run::{DoctorOptions, missing, run};
pub use scratch::{Leftover, Scratch, left_over, nearest_folder};

/// The hidden subcommand that [`probe`] serves.
pub const PROBE_COMMAND: &str = "doctor-probe";
