//! The jail tier: namespaces, idmapped overlays, seccomp and cgroups.
//!
//! `docs/jail.md` says what is built and why; `soulbox-init` (crate `init`) does the building, in what
//! crate `machine` gives to every tier.
//!
//! # Layout
//! - [`Jail`]: the tier as the node sees it
//! - `start`: from a spec to a running sandbox
//! - `sandbox`: one that runs: its connections, its disk, what it uses
//! - `export`: what a sandbox added to its template, as layers
//! - `policy`: seccomp, capabilities and hidden paths, from the data files
//! - `record`: what is needed to find it again after a restart

mod export;
mod jail;
mod policy;
mod record;
mod sandbox;
mod start;

pub use jail::{Jail, has_processes};
