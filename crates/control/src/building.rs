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
//! - `request`, `wish`, `stages`, `start`, `files`: what tenants do
//! - `workshop`, `queue`, `log`: how a build runs
//! - `library`: all templates in memory; `publish`: who may use them
//! - `builtin`: the server's own; `garbage`: what goes

mod builtin;
mod files;
mod garbage;
mod library;
mod log;
mod publish;
mod queue;
mod request;
mod stages;
mod start;
mod wish;
mod workshop;

pub use self::{
    builtin::SERVER_TENANT,
    files::{FileLink, UploadTicket},
    log::{BuildLogEntry, BuildLogPage},
    publish::Published,
    request::{Asked, BuildAsk},
    start::BuildInfo,
    wish::{BaseWish, BuildWish, StageWish},
};
pub(crate) use self::{
    library::{BuildHold, Built, Library},
    request::own_reference,
    workshop::Workshop,
};
