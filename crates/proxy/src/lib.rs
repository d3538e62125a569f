//! The data path: from a client's request to a port inside a sandbox.
//!
//! # Layout
//! - [`route`]: which sandbox and port a request is for; by host name, routing headers, a signed URL or
//!   a token ([`token_route`])
//! - [`guard`]: envd's control routes, which no client may reach
//! - [`ingress`]: the owner's settings for traffic: a token, another host, TLS inside ([`inner_tls`])
//! - [`sandbox_tracker`]: cuts every stream of a sandbox at the moment when it ends
//! - [`wake`]: traffic wakes a paused sandbox
//! - [`stream_limiter`]: how many connections to ports there may be ([`descriptors`])
//! - [`dial`]: a connection to the port, with retries for servers that just start
//! - [`forward`]: one request over that connection, streaming in both directions; [`tunnel`] after an upgrade
//! - [`port`]: raw bytes to a port, for the sandbox's owner
//! - [`headers`]: removes what must not pass from one connection to the next
//! - [`refusal`]: the responses of the proxy itself, in E2B's formats

mod activity;
mod body;
mod client_subnet;
mod counters;
mod descriptors;
mod dial;
mod forward;
mod guard;
mod headers;
mod ingress;
mod inner_tls;
mod log_throttle;
mod port;
mod proxy;
mod refusal;
mod route;
mod sandbox_tracker;
mod signature;
mod stream_limiter;
mod token_route;
mod tunnel;
mod upload;
mod wake;

pub use body::{Body, BoxError};
pub use client_subnet::client_subnet;
pub use counters::{Counters, CountersSnapshot};
pub use headers::ClientConnection;
pub use log_throttle::LogThrottle;
pub use port::{PORT_PROTOCOL, asks_for_port};
pub use proxy::{Proxy, ProxyConfig};
pub use stream_limiter::StreamLimits;
