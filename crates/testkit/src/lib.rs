//! What tests of several crates need. Only ever a dev-dependency.
//!
//! - [`MemoryNode`]: a node whose sandboxes exist in memory only
//! - [`MemoryBuilds`]: a builder that only says what it would do (feature `builds`)
//! - [`spec`]: a sandbox that was asked for

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a test fails by a panic"
)]

#[cfg(feature = "builds")]
mod memory_builds;
mod memory_node;
mod spec;

#[cfg(feature = "builds")]
pub use memory_builds::{MOST_BYTES, MemoryBuilds};
pub use memory_node::{MemoryNode, Moment};
pub use spec::{TENANT, spec};
