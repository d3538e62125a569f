//! Drives the real `soulbox-envd` over HTTP, as the SDKs do. Needs root, as envd changes users.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::format_push_string,
    clippy::let_underscore_must_use,
    reason = "a failing helper should fail its test, and brevity matters more than speed here"
)]

mod client;
mod control;
mod files;
mod large_files;
mod process;
mod protection;
mod support;
mod texts;
mod transfer;
mod watch;
