//! Builds templates: from images, Dockerfiles and steps, each step cached.
//!
//! `docs/templates.md` has the design.
//!
//! # Layout
//! - `builds`: what the control plane calls; `builder`: who does it
//! - `request`: what is to be built; `outcome`: what a build tells; `config`: how far it goes
//! - `pipeline`: a build from its first stage to its template; `base`: what a stage starts from;
//!   `step`: one step; `finalize`: the last part
//! - `job`: one build under way; `room`: a sandbox for a step; `scripts`: what runs as root in it
//! - `key`, `steps`: the cache; `files`, `reserve`: uploads; `lease`, `garbage`: what may go
//! - `state`, `expand`: environment, user and working directory
//! - `journal`, `problem`: lines and errors for the user
//! - `durable`, `removal`: files on the host

mod base;
mod builder;
mod builds;
mod config;
mod durable;
mod expand;
mod files;
mod finalize;
mod garbage;
mod job;
mod journal;
mod key;
mod lease;
mod outcome;
mod pipeline;
mod problem;
mod removal;
mod request;
mod reserve;
mod room;
mod scripts;
mod state;
mod step;
mod steps;

pub use builder::Builder;
pub use builds::{Builds, FilesError, Upload};
pub use config::BuilderConfig;
pub use outcome::{BuildFailure, BuildLog};
pub use request::{Base, BuildRequest, CopySource, Credentials, Stage, Step, StepKind};
