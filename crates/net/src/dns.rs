//! DNS: the forwarder for sandboxes, and the wildcard server of `soulbox dns`.

mod admission;
mod forwarder;
mod message;
mod query_limiter;
mod rate;
mod refuser;
mod resolver;
mod upstream;
mod wildcard;

pub(crate) use admission::Admission;
pub(crate) use forwarder::Forwarder;
pub use query_limiter::NameStats;
pub(crate) use query_limiter::QueryLimiter;
pub(crate) use resolver::Resolver;
pub use wildcard::{WildcardDns, wildcard_dns};
