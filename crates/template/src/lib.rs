//! Templates: what a sandbox starts from.
//!
//! A [`Template`] is a stack of read-only directories per mount point plus an environment.
//! [`Templates`] holds every build that this machine can start, in memory and on disk.

mod error;
mod template;
mod templates;

pub use error::{Error, Result};
pub use template::Template;
pub use templates::Templates;
