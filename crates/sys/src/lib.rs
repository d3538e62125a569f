//! The system calls that no safe crate wraps, each in the smallest module that needs it.
//!
//! # Layout
//! - [`clone`]: a new process in new namespaces
//! - [`deaths_for_lack_of_memory`]: what the kernel counts of its killing
//! - [`exec`]: executing an open file, closing descriptors
//! - [`freeze`]: a file system that stands still
//! - [`idmap`]: mounts whose ids are shifted
//! - [`loopdev`]: a file as a block device that frees itself
//! - [`namespace_owner`], [`enter_new_network`]: who pays for what is counted per user; a network apart
//! - [`find_program`]: programs of the host
//! - [`seccomp`]: loading a filter
//! - [`send_unpaced`]: sockets for connections that never leave the machine
//! - [`take_variable`]: keeping a variable from programs that are started

pub mod clone;
mod environment;
pub mod exec;
pub mod freeze;
pub mod idmap;
mod local_socket;
pub mod loopdev;
mod namespaces;
mod program;
pub mod seccomp;
mod shortage;

pub use environment::take_variable;
pub use local_socket::send_unpaced;
pub use namespaces::{enter_new_network, namespace_owner};
pub use program::find_program;
pub use shortage::deaths_for_lack_of_memory;
