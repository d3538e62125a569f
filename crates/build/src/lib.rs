//! Builds templates: from images, Dockerfiles and steps, each step cached.
//!
//! `docs/templates.md` has the design.
//!
//! # Layout
//! - `builds`: what the control plane calls
//! - `request`: what is to be built
//! - `outcome`: what a build tells

mod builds;
mod outcome;
mod request;

pub use builds::{Builds, FilesError, Upload};
pub use outcome::{BuildFailure, BuildLog};
pub use request::{Base, BuildRequest, CopySource, Credentials, Stage, Step, StepKind};
