//! The system calls that no safe crate wraps, each in the smallest module that needs it.
//!
//! # Layout
//! - [`clone`]: a new process in new namespaces
//! - [`exec`]: executing an open file, closing descriptors
//! - [`idmap`]: mounts whose ids are shifted
//! - [`loopdev`]: a file as a block device that frees itself
//! - [`namespace_owner`]: who pays for what is counted per user
//! - [`seccomp`]: loading a filter

pub mod clone;
pub mod exec;
pub mod idmap;
pub mod loopdev;
mod namespaces;
pub mod seccomp;

pub use namespaces::namespace_owner;
