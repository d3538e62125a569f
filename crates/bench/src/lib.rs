//! Measures a SoulBox server beside the alternatives that the machine has.
//!
//! # Layout
//! - [`Way`]: one way of doing a thing, one timed round at a time
//! - [`Samples`], [`Summary`]: what was measured, and what it comes to
//! - [`report`]: the figures with their method, as table, JSON and a page
//! - `subject`: what is asked of SoulBox
//! - `others`: bare clone, bwrap, docker, runsc

pub mod others;
pub mod report;
mod samples;
pub mod subject;
mod way;

pub use samples::{Samples, Summary};
pub use way::{Failure, Way, alternate};
