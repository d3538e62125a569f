//! What every isolation tier takes from this machine: network slots, cgroups, host ids, disks and
//! prepared slots. A tier decides what runs in them; it makes and removes none of its own.
//!
//! # Layout
//! - [`Machine`]: all of it, opened once per server and shared by its tiers
//! - `config`, `instance`: settings, and what marks everything that this server makes
//! - `network`, `egress`: the range of addresses; a sandbox's rules
//! - `ids`: the host ids that sandboxes run as
//! - `disk`: empty ext4 images and quick copies of them; `capture`: one as it is at one moment
//! - `files`: where a sandbox's disk, layers and volumes are
//! - `node_layer`: files that are the same in every sandbox of this node
//! - `prepared`, `prepare`: slots for sandboxes, made ahead; `slots`: one for a new sandbox
//! - `fork_server`, `launch`: starting `soulbox-init` and hearing from it
//! - `process`: the first process of a sandbox, found and watched without races
//! - `shared`: limits of the kernel that all sandboxes have together
//! - `trial`: one made and ended to see whether a tier works here

mod blocking;
mod capture;
mod config;
mod disk;
mod egress;
mod files;
mod fork_server;
mod ids;
mod instance;
mod launch;
mod machine;
mod network;
mod node_layer;
mod prepare;
mod prepared;
mod process;
mod readable;
mod shared;
mod slots;
mod trial;

pub use blocking::blocking;
pub use capture::{Live, capture};
pub use config::MachineConfig;
pub use disk::{OVERLAYS, wait_until_released};
pub use egress::egress;
pub use instance::Instance;
pub use launch::Launched;
pub use machine::{DEATH_LIMIT, FREEZE_LIMIT, HOSTNAME, Machine};
pub use prepared::PreparedSlot;
pub use process::{FirstProcess, is_alive};
pub use slots::StartedInit;
pub use trial::{Trial, trial, trial_until};
