//! What every surface uses: who asks, what for, and what can go wrong.

pub(crate) mod answer;
pub(crate) mod auth;
pub(crate) mod base_url;
pub(crate) mod body;
pub(crate) mod cors;
pub(crate) mod error;
pub(crate) mod page;
pub(crate) mod path;
pub(crate) mod query;
pub(crate) mod trace;
pub(crate) mod wire;
