//! What the control plane promises, over a real store and a node in memory.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod creating;
mod deadlines;
mod ending;
mod keys;
mod restarts;
mod tiers;
mod world;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use soulbox_control::{
    Access, Control, ControlConfig, CreateRequest, Error, Event, EventFilter, IdempotencyKey,
    LifecycleRequest, Resources, TemplateInfo, Tenant, Wait,
};
use soulbox_runtime::{Error as NodeError, Node, NotWoken};
use soulbox_store::{EndRow, KeyRow, SandboxRow, Store};
use soulbox_testkit::{MemoryNode, Moment};
use soulbox_types::{
    EndReason, Limits, NetworkPolicy, PauseMode, SandboxId, SandboxSpec, Secret, TenantId, Tier,
    UnixMillis,
};
use tempfile::TempDir;

use world::*;
