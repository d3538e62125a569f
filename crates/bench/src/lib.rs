//! Measures a SoulBox server beside the alternatives that the machine has.
//!
//! # Layout
//! - [`Contender`]: one implementation of what is measured, one timed round at a time
//! - [`Samples`], [`Summary`]: what was measured, and what it comes to
//! - [`report`]: the figures with their method, as table, JSON and a page
//! - [`Session`]: a whole run; [`Options`]: what it measures
//! - `fleet`: the servers that are measured, started here or running elsewhere
//! - `suites`: the suites, one per file
//! - `others`: bare clone, bwrap, docker, runsc
//! - `host`: what the kernel reports: memory, and whether the machine is quiet
//! - `verdicts`: the promises, and whether the run kept them

mod alternatives;
mod contender;
mod error;
mod fleet;
pub mod floor;
mod host;
mod options;
pub mod others;
mod progress;
pub mod report;
mod samples;
mod session;
mod suites;
mod verdicts;

pub use contender::{Contender, Failure, WARM_UP, alternate, alternate_with_progress};
pub use error::Error;
pub use fleet::{SERVER_COMMAND, end_all, left};
pub use options::{DockerChoice, MOST_SANDBOXES, Options, ServerChoice, Suite};
pub use progress::Progress;
pub use samples::{Samples, Summary};
pub use session::Session;
