//! Reads a Dockerfile into stages and steps that a template build can run.
//!
//! No I/O: text in, a [`Plan`] out. Whatever a build could not honour is an [`Error`] with its line
//! and a reason, before anything is built. Our own reader rather than a crate: what is hard about
//! Dockerfiles is not their grammar but the meaning (scopes, substitution, heredocs, stages), and
//! each message needs the line.
//!
//! As E2B's `fromDockerfile`, a stage of an image starts as `root` in `/`, and a file that names no
//! user or folder ends as `user` in `/home/user`.
//!
//! # Layout
//! - `source`: physical lines to instructions: directives, continuations, comments, heredocs
//! - `words`: words, flags, JSON arrays, quoting for a shell
//! - `expand`: `$X`, `${X:-y}` and quotes; `scope`: what the names mean where
//! - `stage`: one stage while it is read; a file per group of instructions below it
//! - `read`: the whole file; stages that nothing needs are left out
//! - `plan`: the outcome

mod error;
mod expand;
mod plan;
mod read;
mod scope;
mod source;
mod stage;
mod words;

pub use error::{Error, Result};
pub use plan::{Base, Copy, CopyFrom, Inline, Plan, Stage, Step, StepKind, Warning};
pub use read::{Options, read};

#[cfg(test)]
mod tests;
