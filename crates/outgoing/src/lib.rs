//! What every HTTP client of ours has in common. Whom it asks is hostile: a server inside a sandbox,
//! a webhook's receiver, a registry. Bytes are bounded where they are kept; here the *work* is that
//! few bytes can ask for.
//!
//! # Layout
//! - `interim`: answers before the answer (1xx); `pool`: the same for pooled connections
//! - `pace`: bodies in tiny pieces; `whole`: short bodies, all of them
//! - `address`: which addresses belong to the internet at large; `elsewhere`: and not to this machine

mod address;
mod elsewhere;
mod interim;
mod pace;
#[cfg(feature = "pool")]
mod pool;
mod whole;

pub use address::{is_public, leads_outside};
pub use interim::{Bounded, Flood, Heads, MOST_INTERIM, is_flood};
pub use pace::{Bucket, Pace};
#[cfg(feature = "pool")]
pub use pool::watch_pooled;
pub use whole::{WholeError, whole};
