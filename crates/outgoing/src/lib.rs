//! What all HTTP clients of the server share. The other side is hostile: a server inside a sandbox, a
//! webhook's receiver, a registry. Memory is bounded where bytes are buffered; here the *work* is
//! bounded that few bytes can cause.
//!
//! # Layout
//! - `interim`: limits interim responses (1xx); `pool`: the same for pooled connections
//! - `throttle`: limits the rate of tiny chunks; `collect`: short bodies as a whole
//! - `address`: which addresses are public; `route`: whether packets to them leave this machine

mod address;
mod collect;
mod interim;
#[cfg(feature = "pool")]
mod pool;
mod route;
mod throttle;

pub use address::{is_public, leads_outside};
pub use collect::{CollectError, collect_limited};
pub use interim::{Flood, InterimLimit, LimitedStream, MOST_INTERIM, is_flood};
#[cfg(feature = "pool")]
pub use pool::watch_pooled;
pub use throttle::{ChunkThrottle, TokenBucket};
