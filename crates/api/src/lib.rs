//! E2B's REST interface over the control plane.
//!
//! One file per resource; each only translates. `error` is the one map from errors to HTTP.
//!
//! # Layout
//! - `router`: every route, also those that are not supported yet
//! - `sandboxes`, `snapshots`, `templates`, `tags`, `keys`, `teams`: the resources
//! - `secrets`, `volumes`, `volume_content`: what tenants keep between sandboxes
//! - `events`, `webhooks`, `team_metrics`: what happened
//! - `unsupported`: what is not built yet says so
//! - `auth`, `base_url`, `body`, `path`, `query`: reading a request
//! - `page`, `wire`: writing an answer
//! - `cors`, `trace`: around every request

mod auth;
mod base_url;
mod body;
mod broken;
mod builds;
mod cors;
mod domain;
mod error;
mod events;
mod execute;
mod health;
mod keys;
mod page;
mod path;
mod query;
mod router;
mod sandboxes;
mod secrets;
mod snapshots;
mod tags;
mod team_metrics;
mod teams;
mod templates;
mod trace;
mod unsupported;
mod volume_content;
mod volumes;
mod webhooks;
mod wire;

pub use self::{
    base_url::OverTls,
    router::{ApiConfig, router},
};
