//! The jail tier: namespaces, idmapped overlays, seccomp and cgroups.
//!
//! `docs/jail.md` tells what is built and why; `soulbox-init` (crate `init`) does the building.
//!
//! # Layout
//! - [`Jail`]: the tier as the node sees it
//! - `config`, `instance`: settings, and what marks everything that this server makes
//! - `ids`: the host ids that sandboxes run as
//! - `disk`: empty ext4 images and quick copies of them
//! - `capture`: a disk as it is at one moment
//! - `export`: what a sandbox added to its template, as layers
//! - `policy`: seccomp, capabilities and hidden paths, from the data files
//! - `prepared`, `prepare`: slots for sandboxes, made ahead
//! - `start`, `launch`: from a spec to a running sandbox: starting `soulbox-init` and hearing from it
//! - `shared`: limits of the kernel that all sandboxes have together
//! - `trial`: one made and ended to see whether this machine can
//! - `process`: the first process of a sandbox, found and watched without races
//! - `record`: what is needed to find it again after a restart

mod blocking;
mod capture;
mod config;
mod disk;
mod egress;
mod export;
mod fork_server;
mod ids;
mod instance;
mod jail;
mod launch;
mod network;
mod node_layer;
mod policy;
mod prepare;
mod prepared;
mod process;
mod readable;
mod record;
mod sandbox;
mod shared;
mod start;
mod trial;

pub use config::JailConfig;
pub use instance::Instance;
pub use jail::Jail;
pub use trial::Trial;
