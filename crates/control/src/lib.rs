//! The control plane: tenants, keys, and what should run.
//!
//! The store holds intent and history, the node holds the truth about what runs, and this crate
//! keeps the two together. It knows nothing of HTTP.
//!
//! # Layout
//! - `control`: [`Control`], its start and end
//! - `reconcile`, `watch`: following the node, at start and afterwards
//! - `registry`: which sandboxes are live and whose they are, in memory
//! - `create`, `deadline`, `rest`, `ending`, `network`, `view`: what tenants do with sandboxes
//! - `guest`: whether envd inside a sandbox answers
//! - `snapshot`, `fork`, `shelf`: keeping the files of sandboxes, and making others from them
//! - `request`, `idempotency`: checking a wish; answering a repeated one
//! - `template`, `reference`: templates and the names that mean them
//! - `keys`, `api_key`: who may come in
//! - `token`: tokens derived from the server's seed

mod api_key;
mod config;
mod control;
mod create;
mod deadline;
mod ending;
mod error;
mod fork;
mod guest;
mod idempotency;
mod keys;
mod network;
mod reconcile;
mod reference;
mod registry;
mod request;
mod rest;
mod shelf;
mod snapshot;
mod template;
mod token;
mod view;
mod watch;

pub use self::{
    config::{ControlConfig, TemplateInfo},
    control::Control,
    create::Access,
    error::{Error, Result},
    idempotency::IdempotencyKey,
    keys::{KeyInfo, NewKey, Tenant},
    reference::Reference,
    request::{CreateRequest, LifecycleRequest, Resources},
    rest::Connected,
    snapshot::SnapshotInfo,
    template::{Template, TemplateBuild},
    view::{Metrics, Sandbox},
};
