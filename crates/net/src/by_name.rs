//! Egress by name: connections of sandboxes whose allow list has names of hosts.
//!
//! The firewall sends them here instead of to their destination. The name in their first bytes is
//! compared with the sandbox's list, resolved by us, and connected to: where the sandbox wanted to
//! connect to does not count. `docs/decisions/0006-egress-by-name.md` says why.
//!
//! # Layout
//! - [`DomainRules`]: who may use which names
//! - [`Gate`]: the listeners, and what happens to one connection
//! - `first_bytes`: reads the name; `hello` from TLS, `head` from HTTP
//! - `refusal`: what a program is told; `pipe`: bytes in both directions

mod first_bytes;
mod gate;
mod head;
mod hello;
mod pipe;
mod refusal;
mod rules;
mod stats;

pub(crate) use gate::{Gate, GatePorts};
pub(crate) use rules::{DomainRules, Question};
pub use stats::ByNameStats;
pub(crate) use stats::Counters;
