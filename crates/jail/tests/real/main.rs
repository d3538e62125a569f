//! The jail for real: kernel, cgroups, network and the guest programs. Needs root.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod disks;
mod layers;
mod life;
mod limits;
mod prepared_slots;
mod shared_kernel;
mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use soulbox_runtime::{Adopted, Disk, Error, Origin, Runtime};
use soulbox_types::{ENVD_PORT, Limits, SandboxSpec};

use support::*;
