//! Builds templates: from images, Dockerfiles and steps, each step cached.
//!
//! `docs/templates.md` has the design.
//!
//! # Layout
//! - `request`: what is to be built
//! - `outcome`: what a build tells

mod outcome;
mod request;

pub use outcome::{BuildFailure, BuildLog};
pub use request::{Base, BuildRequest, CopySource, Credentials, Stage, Step, StepKind};
