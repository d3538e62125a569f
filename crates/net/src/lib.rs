//! Network slots, firewall and names for sandboxes.
//!
//! A slot is a network namespace with one veth pair to the host. Nothing but file
//! descriptors and the sandbox's own processes keep it alive: there is no name under `/run/netns`,
//! so a killed server leaves nothing behind and the kernel is the clean-up. Whether a sandbox may
//! use the internet is a property of the host's end of the veth pair (its link group), not a firewall
//! element: it cannot get out of step, and it survives the server. Sandboxes with rules of their own
//! are in a third group, for which the firewall's sets decide. `docs/network.md` says why.
//!
//! # Layout
//! - [`Network`]: opens everything, keeps a pool of ready slots, adopts the slots of a former server
//! - [`connect_in`]: the one way into a sandbox: a socket made inside its namespace
//! - `link`, `namespace`, `netlink`, `messages`: the kernel's objects, and how it tells of them
//! - `firewall`: the one nftables table
//! - `flows`: the kernel's table of connections
//! - [`socket_memory_in`]: what waits in the sockets of a namespace
//! - `policy`: what one sandbox may reach
//! - `by_name`: what it may reach by the names of hosts
//! - `dns`: the forwarder for sandboxes, and [`WildcardDns`], the name server of a domain
//! - `threads`: threads that may enter another namespace and always return to their own

mod by_name;
mod claim_lock;
mod config;
mod connect;
mod dns;
mod error;
mod firewall;
mod flows;
mod link;
mod messages;
mod names;
mod namespace;
mod netlink;
mod network;
mod policy;
mod range;
mod slot;
mod threads;
mod unread;

pub use by_name::ByNameStats;
pub use config::NetConfig;
pub use connect::connect_in;
pub use dns::{NameStats, WildcardDns, wildcard_dns};
pub use error::Error;
pub use firewall::{Counted, Traffic};
pub use network::{NetStats, Network};
pub use policy::{EgressPolicy, EgressRule};
pub use range::Ipv4Net;
pub use slot::Slot;
pub use unread::{SocketMemory, socket_memory_in};
