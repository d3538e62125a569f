//! What all HTTP clients of the server share. The other side is hostile: a server inside a sandbox, a
//! webhook's receiver, a registry. Memory is bounded where bytes are buffered; here the *work* is
//! bounded that few bytes can cause.
//!
//! # Layout
//! - `interim`: limits interim responses (1xx); `pool`: the same for pooled connections
//! - `throttle`: limits the rate of tiny chunks; `collect`: short bodies as a whole
//! - `connect`: the addresses of a host, and a connection to one of them; `tls`: TLS on it; `pooled`:
//!   both in a pool; `presented`: the certificates of a server that nobody vouches for yet
//! - `address`: which addresses are public; `route`: whether packets to them leave this machine

mod address;
mod collect;
mod connect;
mod interim;
#[cfg(feature = "pool")]
mod pool;
#[cfg(feature = "pool")]
mod pooled;
#[cfg(feature = "tls")]
mod presented;
mod route;
mod throttle;
#[cfg(feature = "tls")]
mod tls;

pub use address::{is_public, leads_outside};
pub use collect::{CollectError, collect_limited};
pub use connect::{connect_any, only_outside, resolve};
pub use interim::{Flood, InterimLimit, LimitedStream, MOST_INTERIM, is_flood};
#[cfg(feature = "pool")]
pub use pool::watch_pooled;
#[cfg(feature = "pool")]
pub use pooled::PooledStream;
#[cfg(feature = "tls")]
pub use presented::presented;
pub use route::is_elsewhere;
pub use throttle::{ChunkThrottle, TokenBucket};
#[cfg(feature = "tls")]
pub use tls::{Tls, TlsError, system_roots};
