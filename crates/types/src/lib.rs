//! Identifiers, limits and states that every part of SoulBox shares.
//!
//! No I/O and no async here: the programs inside a sandbox link this crate too.
//!
//! # Layout
//! - [`id`]: sandbox, tenant and template names, with the shapes that E2B's clients accept
//! - [`limits`]: what a sandbox may use
//! - [`domain`]: names of hosts in allow lists
//! - [`network`]: what it may reach, and who may reach it
//! - [`spec`]: everything needed to make a sandbox, and to adopt it after a restart
//! - [`guest`]: what the node hands to `soulbox-init` and `soulbox-envd`
//! - [`secret`]: strings that cannot be printed
//! - [`time`]: milliseconds since the epoch
//! - [`chain`]: errors together with what led to them

pub mod chain;
pub mod domain;
pub mod guest;
pub mod id;
pub mod limits;
pub mod network;
pub mod secret;
pub mod spec;
pub mod time;

pub use chain::{Chain, causes};
pub use domain::{DomainPattern, NotADomain, host_name};
pub use guest::EnvdConfig;
pub use id::{InvalidId, SandboxId, TemplateId, TenantId};
pub use limits::{INSTANCE_TYPES, Limits, disk_reserve};
pub use network::{Destination, NetworkPolicy, NotADestination};
pub use secret::Secret;
pub use spec::{
    EndReason, Lifecycle, OnTimeout, PauseMode, Purpose, SandboxSpec, SandboxState, StartCommand,
    Tier, UnknownTier, VolumeMount,
};
pub use time::UnixMillis;

/// The envd protocol version that we report. It is E2B's: their SDKs switch features on by it.
pub const ENVD_VERSION: &str = "0.6.13";
/// envd's port inside every sandbox.
pub const ENVD_PORT: u16 = 49983;
/// Header that authorises the node (and nobody else) to use envd's control routes.
pub const NODE_TOKEN_HEADER: &str = "x-soulbox-node-token";
