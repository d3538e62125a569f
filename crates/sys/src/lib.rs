//! The system calls that no safe crate wraps, each in the smallest module that needs it.
//!
//! # Layout
//! - [`clone`]: a new process in new namespaces
//! - [`exec`]: executing an open file, closing descriptors
//! - [`idmap`]: mounts whose ids are shifted
//! - [`loopdev`]: a file as a block device that frees itself
//! - [`namespace_owner`], [`enter_new_network`]: who pays for what is counted per user; a network apart
//! - [`find_program`]: programs of the host
//! - [`seccomp`]: loading a filter

pub mod clone;
pub mod exec;
pub mod idmap;
pub mod loopdev;
mod namespaces;
mod program;
pub mod seccomp;

pub use namespaces::{enter_new_network, namespace_owner};
pub use program::find_program;
