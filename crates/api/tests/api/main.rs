//! E2B's REST interface as its clients see it: statuses, headers and whole bodies.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

#[path = "../support/world.rs"]
mod support;

mod built_in_templates;
mod conformance;
mod create;
mod disk;
mod errors;
mod idempotency;
mod metrics_and_logs;
mod network;
mod requests;
mod sandboxes;
mod tenants;
mod tiers;
