//! Templates: what a sandbox starts from; here the one made of the host itself.
//!
//! A [`Template`] is a stack of read-only directories per mount point plus an environment.
//! `base` needs no download and no image: its `/usr` is the machine's own, below a thin layer that
//! hides what is not for everybody, and everything else (`/etc`, `/home`, `/var`, …) is made anew.
//! Nothing is copied that an unprivileged user of the host could not read, and of configuration
//! files that often hold passwords only the harmless lines.
//!
//! # Layout
//! - `template`: the description that the node keeps
//! - `templates`: every build that this machine can start, in memory and on disk
//! - `host`: `base`; below it `walk` (what of `/usr` is private), `root`, `etc`, `accounts`,
//!   `variable` (the generated root), `certificates`, `credentials` (the filters), `state` (when
//!   an earlier result still holds)
//! - `layer`: building one directory tree under a name that follows from its content
//! - `prune`: removing layers that nothing uses

mod error;
mod host;
mod layer;
mod prune;
mod template;
mod templates;

pub use error::{Error, Result};
pub use host::{HostOptions, prepare_host};
pub use prune::prune;
pub use template::Template;
pub use templates::Templates;
