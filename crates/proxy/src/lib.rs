//! The data path: from a client's request to a port inside a sandbox.
//!
//! # Layout
//! - [`route`]: whose request is it; from host name, routing headers or a signed URL
//! - [`guard`]: envd's control routes, which no client may reach
//! - [`ingress`]: what the owner asked of traffic: a token, another host, TLS inside ([`inner_tls`])
//! - [`life`]: cuts every stream of a sandbox at the moment when it ends
//! - [`wake`]: traffic wakes a paused sandbox
//! - [`ways`]: how many connections to ports there may be ([`descriptors`]), and who waits for one
//! - [`dial`]: a connection to the port, with patience for servers that just start
//! - [`forward`]: one request over that connection, streaming both ways; [`tunnel`] after an upgrade
//! - [`headers`]: what must not travel from one connection to the next
//! - [`refusal`]: the answers that the proxy gives itself, in E2B's shapes

mod activity;
mod body;
mod counters;
mod descriptors;
mod dial;
mod forward;
mod guard;
mod headers;
mod ingress;
mod inner_tls;
mod life;
mod neighbours;
mod proxy;
mod refusal;
mod route;
mod seldom;
mod signature;
mod tunnel;
mod upload;
mod wake;
mod ways;

pub use body::{Body, BoxError};
pub use counters::{Counters, CountersSnapshot};
pub use headers::ClientConnection;
pub use life::SandboxEnd;
pub use neighbours::neighbours;
pub use proxy::{Proxy, ProxyConfig};
pub use seldom::Seldom;
pub use ways::WayLimits;
