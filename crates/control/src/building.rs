//! Building templates: what is asked for, in which order it runs, what is left of it.
//!
//! ```text
//! request_build ─► waiting ─► start_build ─► building ─► ready   (its tags mean it)
//!                     └── cancelled, superseded ──┴────► error   (with step and reason)
//! ```
//! A build that was `building` when the server stopped is built again at the next start.
//!
//! Templates and snapshots of a tenant share one namespace: a name is either's, and the other is
//! refused.
//!
//! # Layout
//! - `request`, `definition`, `stages`, `start`, `files`: what tenants do
//! - `scheduler`, `queue`, `log`: how a build runs; `ended`: how many ended, and how
//! - `patience`, `progress`: who waits for a build, and what they are told
//! - `templates`: all templates in memory; `publish`: who may use them
//! - `builtin`: the server's own; `garbage`: what goes

mod builtin;
mod definition;
mod ended;
mod files;
mod garbage;
mod log;
mod patience;
mod progress;
mod publish;
mod queue;
mod request;
mod scheduler;
mod stages;
mod start;
mod templates;

pub use self::{
    builtin::SERVER_TENANT,
    definition::{BaseDefinition, BuildDefinition, StageDefinition},
    ended::{BuildStats, EndedBuildStats},
    files::{FileLink, UploadTicket},
    log::{BuildLogEntry, BuildLogPage},
    patience::Wait,
    publish::Published,
    request::{Asked, BuildRequest},
    start::BuildInfo,
};
pub(crate) use self::{
    garbage::Collecting,
    request::own_reference,
    scheduler::BuildScheduler,
    templates::{BuildHold, Built, TemplateCatalog},
};
