//! The network on a real kernel: real namespaces, real links, real rules. Needs root.
//!
//! Traffic goes only to loopback and to namespaces that these tests make. Every test has its own
//! instance tag and range, so they run side by side and beside a real server.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests may panic like the tests"
)]

mod adoption;
mod bed;
mod by_name;
mod firewalls;
mod flows;
mod isolation;
mod names;
mod policy;
mod slots;
mod unread;
