//! Errors, with what the operator can do.

use std::io;
use std::net::SocketAddr;

use crate::Ipv4Net;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("all {max} network slots are in use: stop some sandboxes or raise the limit")]
    NoCapacity { max: u32 },

    #[error(
        "{rules} network rules are too many for one sandbox: at most {max}, and fewer when they overlap"
    )]
    PolicyTooLarge { rules: usize, max: usize },

    #[error("invalid network configuration: {0}")]
    Config(String),

    #[error(
        "the address range {range} is already used by {user}: choose another range for sandboxes"
    )]
    RangeInUse { range: Ipv4Net, user: String },

    #[error(
        "every range from 10.213.0.0/16 to 10.219.0.0/16 is used on this host, by {users}: name a \
         free private one with --network-range. A link sbx… belongs to a server: one that was \
         killed takes it back when it is started again on its data folder; if that is gone, \
         `ip link delete` removes it"
    )]
    NoFreeRange { users: String },

    #[error(
        "the program `nft` was not found: install the package `nftables` \
         (apt install nftables, dnf install nftables, apk add nftables)"
    )]
    NftMissing,

    #[error("the firewall refused the change: {0}")]
    Firewall(String),

    #[error("cannot answer DNS on {address}: {source}")]
    DnsListen {
        address: SocketAddr,
        source: io::Error,
    },

    #[error("cannot accept connections by name on {address}: {source}")]
    GateListen {
        address: SocketAddr,
        source: io::Error,
    },

    #[error("{doing}: {source}")]
    Kernel { doing: String, source: io::Error },

    #[error("{doing} took longer than {seconds} s")]
    TimedOut { doing: &'static str, seconds: u64 },

    #[error("network slot {index} cannot be adopted: {why}")]
    NotAdoptable { index: u32, why: String },

    #[error("the network is closed")]
    Closed,
}

impl Error {
    pub(crate) fn kernel(doing: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Kernel {
            doing: doing.into(),
            source: source.into(),
        }
    }
}

/// Adds what was being done to an error of the kernel.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|error| Error::kernel(what(), error))
    }
}
