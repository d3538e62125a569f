//! Names: the forwarder that sandboxes ask, and the wildcard server of `soulbox dns`.

mod admission;
mod forwarder;
mod message;
mod questions;
mod rate;
mod upstream;
mod wildcard;

pub(crate) use forwarder::Forwarder;
pub use questions::NameStats;
pub(crate) use questions::Questions;
pub use wildcard::wildcard_dns;
