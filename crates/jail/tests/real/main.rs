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
    ops::Deref,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use soulbox_cgroup::Manager;
use soulbox_jail::Jail;
use soulbox_machine::{Instance, Machine, MachineConfig, Trial, trial};
use soulbox_runtime::{Adopted, Disk, Error, NewSandbox, Origin, Running, Runtime};
use soulbox_template::Template;
use soulbox_types::{
    ENVD_PORT, Limits, NetworkPolicy, SandboxSpec, Secret, TemplateId, UnixMillis,
    guest::OverlaySpec,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use support::*;
