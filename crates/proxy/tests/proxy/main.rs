//! The proxy before a node in memory whose ports are real listeners.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure here is a failed test"
)]

mod floods;
mod ingress;
mod ports;
mod routing;
mod stream_limits;
mod streaming;
mod support;
mod waking;
