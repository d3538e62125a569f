//! Makes the template `base` from the host.
//!
//! `base` needs no download and no image: its `/usr` is the host's own, below a thin overlay layer
//! that hides what not everybody may read. Everything else (`/etc`, `/home`, `/var`, …) is
//! generated. Nothing is copied that an unprivileged user of the host could not read, and of
//! configuration files that often hold passwords only the lines without any.
//!
//! # Layout
//! - `prepare`: makes the template, or finds that the existing one is up to date
//! - `walk`: which files of `/usr` are private
//! - `root`, `etc`, `accounts`, `variable`: the generated root file system
//! - `certificates`: the trusted certificate authorities
//! - `credentials`: filters that leave out lines with passwords and tokens
//! - `state`: whether an earlier build is still up to date
//! - `layer`: builds one directory tree and names it by the hash of its content
//! - `prune`: removes layers that nothing uses

mod accounts;
mod certificates;
mod credentials;
mod error;
mod etc;
mod layer;
mod prepare;
mod prune;
mod root;
mod state;
mod variable;
mod walk;

pub use error::{Error, Result};
pub use prepare::{HostOptions, prepare_host};
pub use prune::prune;
