//! The REST interfaces over the control plane: two surfaces, and what they share.
//!
//! # Layout
//! - `e2b`: E2B's protocol, which its clients speak
//! - `v1`: SoulBox's own routes, below `/v1`
//! - `shared`: reading requests, writing pages, errors in no surface's words, CORS and tracing
//! - `router`: the surfaces, one beside the other
//!
//! Errors come from the control plane with a code from its closed list; each surface has one
//! `error` module that words them and maps them to HTTP.

mod e2b;
mod router;
mod shared;
mod v1;

pub use self::{
    router::{ApiConfig, router},
    shared::base_url::OverTls,
};
