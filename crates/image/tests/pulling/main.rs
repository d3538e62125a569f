//! Images from a good registry, from a bad one, and from files.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should stop there"
)]

mod archives;
mod bad_layers;
mod bad_registry;
mod garbage;
mod good_registry;
mod image;
mod real_images;
mod real_registry;
mod server;
mod sharing;
mod signing_in;
mod store;
mod tls;
