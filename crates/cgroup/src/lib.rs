//! Limits, freezing and accounting through cgroup v1 and v2.
//!
//! A [`Manager`] owns one parent group (`soulbox-<tag>`) in every usable hierarchy, directly below
//! the mount point and not below the server's own group: a service manager that restarts the
//! server would otherwise end every sandbox with it. A [`Cgroup`] is one sandbox's group, on v1
//! one directory per hierarchy, on v2 a single one.
//!
//! All calls block (a few microseconds per file; freezing, killing and removing up to the bound
//! that the caller gives).
//!
//! # Layout
//! - `discover`: which hierarchies are mounted and what they control
//! - `manager`: the parent group, creation and listing
//! - `group`: one sandbox's group: joining, the view from inside, removal
//! - `limits`: ceilings, as the files of v1 and v2 want them
//! - `slice`: limits on all groups together
//! - `freeze`, `kill`, `stats`: what is done to a running group
//! - `warm`: making the next join cheap
//! - `file`: one-line files, with errors that name them

mod adjust;
mod discover;
mod error;
mod file;
mod freeze;
mod group;
mod kill;
mod limits;
mod manager;
mod slice;
mod stats;
mod warm;

pub use discover::{Controller, Version};
pub use error::{Error, Result};
pub use group::Cgroup;
pub use limits::CgroupLimits;
pub use manager::Manager;
pub use slice::{Ceiling, SliceLimits, SliceUse, memory_ceiling};
pub use stats::CgroupStats;
