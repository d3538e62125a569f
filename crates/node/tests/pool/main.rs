//! The warm pool's promises, with a runtime that keeps its sandboxes in memory.

#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod handing_over;
#[path = "../support/machine.rs"]
mod machine;
mod memory;
mod restarts;
#[path = "../support/pool.rs"]
mod support;
mod taking_over;

use std::{collections::HashSet, sync::Arc, time::Duration};

use machine::{FakeMemory, LONG, spec};
use soulbox_node::NodeConfig;
use soulbox_runtime::{Error, Node, PoolKey};
use soulbox_template::Template;
use soulbox_types::{
    EndReason, Limits, NetworkPolicy, Purpose, SandboxId, SandboxSpec, SandboxState, StartCommand,
    UnixMillis,
};
use support::{World, folders, meminfo};
use tokio::sync::Notify;
