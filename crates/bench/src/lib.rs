//! Measures a SoulBox server beside the alternatives that the machine has.
//!
//! # Layout
//! - [`Way`]: one way of doing a thing, one timed round at a time
//! - [`Samples`], [`Summary`]: what was measured, and what it comes to
//! - [`report`]: the figures with their method, as table, JSON and a page
//! - [`Session`]: a whole run; [`Options`]: what of it is wanted
//! - `fleet`: the servers that are measured, started here or running elsewhere
//! - `subject`: what is asked of SoulBox, one suite per file
//! - `others`: bare clone, bwrap, docker, runsc
//! - `host`: what the machine's own books say: about memory, and whether it is quiet
//! - `verdicts`: the promises, and whether the run kept them

mod alternatives;
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
mod subject;
mod verdicts;
mod way;

pub use error::Error;
pub use fleet::{SERVER_COMMAND, end_all, left};
pub use options::{DockerChoice, MOST_SANDBOXES, Options, ServerChoice, Suite};
pub use progress::Progress;
pub use samples::{Samples, Summary};
pub use session::Session;
pub use way::{Failure, WARM_UP, Way, alternate, alternate_telling};
