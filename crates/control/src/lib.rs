//! The control plane: tenants, keys, and what should run.
//!
//! The store holds intent and history, the node holds the truth about what runs, and this crate
//! keeps the two together. It knows nothing of HTTP.
//!
//! # Layout
//! - `control`: [`Control`], its start and end
//! - `reconcile`, `watch`: following the node, at start and afterwards
//! - `committed`: memory follows the store
//! - `registry`: which sandboxes are live and whose they are, in memory
//! - `create`, `deadline`, `pause`, `ending`, `network`, `view`: what tenants do with sandboxes
//! - `guest`: whether envd inside a sandbox answers
//! - `snapshot`, `fork`, `snapshots`: keeping the files of sandboxes, and making others from them
//! - `request`, `idempotency`: checking a request; answering a repeated one
//! - `template`, `catalogue`, `tags`, `reference`: templates and the names that mean them
//! - `building`: how templates come to be, and go; `disk`: what takes room, and freeing it
//! - `keys`, `api_key`: who may come in
//! - `token`, `vault`: tokens and keys derived from the server's seed
//! - `secrets`, `volumes`: what tenants keep between sandboxes
//! - `error`: what can go wrong, as a closed list of codes with words and hints
//! - `journal`, `webhooks`, `team_metrics`: what happened, who is told, what it adds up to

mod api_key;
mod broken;
mod building;
mod catalogue;
mod committed;
mod config;
mod control;
mod create;
mod deadline;
mod disk;
mod ending;
mod enter;
mod error;
mod fork;
mod guest;
mod idempotency;
mod journal;
mod keys;
mod network;
mod pause;
mod reconcile;
mod reference;
mod registry;
mod request;
mod secrets;
mod snapshot;
mod snapshots;
mod tags;
mod team_metrics;
mod template;
mod token;
mod vault;
mod view;
mod volumes;
mod watch;
mod webhooks;

pub use self::{
    broken::BrokenSandbox,
    building::{
        Asked, BaseDefinition, BuildDefinition, BuildInfo, BuildLogEntry, BuildLogPage,
        BuildRequest, BuildStats, EndedBuildStats, FileLink, Published, SERVER_TENANT,
        StageDefinition, UploadTicket, Wait,
    },
    config::{BuildConfig, BuiltIn, ControlConfig, TemplateInfo},
    control::Control,
    create::Access,
    disk::{DiskItem, DiskKind},
    error::{Error, ErrorCode, Problem, Result},
    idempotency::IdempotencyKey,
    journal::{EVENT_KINDS, Event},
    keys::{KeyInfo, NewKey, Tenant},
    pause::Connected,
    reference::Reference,
    request::{CreateRequest, LifecycleRequest, MountRequest, Resources},
    secrets::SecretInfo,
    snapshot::SnapshotInfo,
    team_metrics::{TeamMetric, TeamSample},
    template::{Template, TemplateBuild},
    view::{Metrics, Sandbox},
    volumes::VolumeInfo,
    webhooks::{WebhookChanges, WebhookConfig, WebhookInfo},
};
/// For those who ask for builds and events, and touch volumes.
pub use soulbox_build as build;
pub use soulbox_store::{BuildReason, BuildRow, BuildStatus, EventFilter};
pub use soulbox_volume as volume;
