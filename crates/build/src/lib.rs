//! Builds templates: from images, Dockerfiles and steps, each step cached.
//!
//! `docs/templates.md` has the design.
//!
//! # Layout
//! - `builds`: the interface to the control plane; `builder`: its implementation
//! - `request`: what is to be built; `outcome`: the result of a build; `config`: paths and limits
//! - `pipeline`: a build from its first stage to its template; `base`: what a stage starts from;
//!   `lanes`: which steps run at the same time; `step`: one step; `finalize`: the last part
//! - `job`: one running build; `step_sandbox`: the sandbox of a step; `scripts`: what runs as root
//!   in it
//! - `key`, `step_cache`: the cache; `files`, `reserve`: uploads; `lease`, `garbage`: what may be
//!   removed
//! - `state`, `expand`: environment, user and working directory
//! - `step_log`, `problem`: lines and errors for the user
//! - `durable`, `removal`, `disk_use`: files on the host

mod base;
mod builder;
mod builds;
mod config;
mod disk_use;
mod durable;
mod expand;
mod files;
mod finalize;
mod garbage;
mod job;
mod key;
mod lanes;
mod lease;
mod outcome;
mod pipeline;
mod problem;
mod removal;
mod request;
mod reserve;
mod scripts;
mod state;
mod step;
mod step_cache;
mod step_log;
mod step_sandbox;

pub use builder::{Builder, HeldFolders};
pub use builds::{Builds, FilesError, Upload};
pub use config::BuilderConfig;
pub use disk_use::BuildDisk;
pub use outcome::{BuildFailure, BuildLog};
pub use request::{Base, BuildRequest, CopySource, Stage, Step, StepKind};
pub use soulbox_image::Credentials;
