//! A typed client for the E2B interface: the REST control plane, and envd (processes, files)
//! inside a sandbox through header routing.
//!
//! Every call is bounded: a deadline on unary calls, an idle limit on streams, a size limit on
//! whatever the other side sends. The other side of an envd stream is code inside a sandbox.
//!
//! # Layout
//! - [`config`]: where the server is and which key to show, from flags, environment or data folder
//! - [`contexts`]: servers that the user has logged in to
//! - [`Client`]: the control plane; one file per resource under `api/`
//! - [`Envd`]: one sandbox; processes and files under `envd/`
//! - `transport`, `connector`: hyper, TCP and TLS; `upload`: long bodies
//! - [`Error`]: what went wrong, and [`Error::hint`]: what to do about it

mod api;
mod base_url;
pub mod config;
mod connector;
pub mod contexts;
pub mod envd;
mod error;
pub mod model;
mod transport;
mod upload;

pub use api::{Client, Disk, DiskChunk, EVENTS_PER_PAGE, PortStream};
pub use config::Config;
pub use connector::presented_certificates;
pub use envd::Envd;
pub use error::{ApiError, Error, Result, RpcError};
pub use soulbox_outgoing::system_roots;
