//! How many connections of clients there may be, and streams on them, so that the server keeps
//! descriptors for its own work.
//!
//! The limit of open files is shared by four: sandboxes, which the node admits until an eighth (at
//! most 1024) is left; clients' connections; their streams, each of which needs a descriptor for
//! its connection into a sandbox; and the server's own work: its database, pipes to new sandboxes,
//! images.
//!
//! ```text
//! 0                              limit - 1/8     limit - 3/32    limit - 1/16     limit
//! ├─ sandboxes and all the others ────┼─ connections, ──┼── streams ───┼── own work ──┤
//! │                                   │  pending ones   │              │              │
//! ```
//!
//! Connections and streams have at most half of the first part each in number, whatever is free,
//! so that neither can keep sandboxes out alone.

use rustix::process::{Resource, getrlimit};
use soulbox_proxy::StreamLimits;

const RESERVED_SHARE: u64 = 8;
const MAX_RESERVED: u64 = 1024;
/// Each costs some kilobytes, with or without requests.
const MAX_OPEN: usize = 32_768;
/// Admitted however scarce descriptors are: an operator must be able to end what uses them.
const MIN_OPEN: usize = 16;
/// Half of what connections have before streams, as pending ones hold descriptors too.
const PENDING_SHARE: u64 = 8;
const MAX_PENDING: u64 = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectionLimits {
    /// Connections at a time.
    pub(crate) max_open: usize,
    /// Of these, from one client: an address, or a /64 of IPv6.
    pub(crate) max_per_client: usize,
    /// From this descriptor on, a connection is only admitted when another one is closed.
    pub(crate) max_descriptors: u64,
    /// Accepted connections that wait to be admitted, at a time.
    pub(crate) max_pending: usize,
    /// Streams into sandboxes.
    pub(crate) streams: StreamLimits,
}

impl ConnectionLimits {
    pub(crate) fn of_this_process() -> Self {
        match getrlimit(Resource::Nofile).current {
            Some(limit) => Self::within(limit),
            None => Self::within(u64::MAX),
        }
    }

    fn within(limit: u64) -> Self {
        let reserved = (limit / RESERVED_SHARE).min(MAX_RESERVED);
        let half = usize::try_from((limit - reserved) / 2).unwrap_or(usize::MAX);
        let max_open = half.clamp(MIN_OPEN, MAX_OPEN);
        let max_pending = (reserved / PENDING_SHARE).clamp(2, MAX_PENDING);
        Self {
            max_open,
            max_per_client: max_open / 2,
            max_descriptors: limit - reserved / 4 * 3,
            max_pending: usize::try_from(max_pending).unwrap_or(MIN_OPEN),
            streams: StreamLimits {
                max_open,
                max_descriptors: limit - reserved / 2,
            },
        }
    }

    /// Closing an idle connection can take a moment. A client that waits for its own to be closed
    /// leaves room for the others to be accepted.
    pub(super) fn max_pending_at_own_limit(&self) -> usize {
        self.max_pending / 2
    }

    /// `ceiling`: while descriptors are scarce.
    pub(super) fn allow(&self, open: usize, ceiling: Option<usize>) -> bool {
        let below_ceiling = ceiling.is_none_or(|ceiling| open < ceiling);
        open < self.max_open && (below_ceiling || open < MIN_OPEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_and_streams_have_half_each_of_what_is_not_reserved_for_the_server() {
        let limits = ConnectionLimits::within(1024);
        assert_eq!((limits.max_open, limits.streams.max_open), (448, 448));
        assert_eq!(limits.max_per_client, 224);
        assert_eq!(
            (limits.max_descriptors, limits.streams.max_descriptors),
            (928, 960)
        );
        assert_eq!(limits.max_pending, 16);
        let limits = ConnectionLimits::within(20_000);
        assert_eq!((limits.max_open, limits.streams.max_open), (9488, 9488));
        assert_eq!(limits.max_pending, 128);
        assert_eq!(ConnectionLimits::within(1 << 20).max_open, MAX_OPEN);
        assert_eq!(ConnectionLimits::within(u64::MAX).max_open, MAX_OPEN);
        assert_eq!(ConnectionLimits::within(8).max_open, MIN_OPEN);
    }

    #[test]
    fn what_sandboxes_use_leaves_fewer_connections_but_never_none() {
        let limits = ConnectionLimits::within(1024);
        assert!(limits.allow(447, None) && !limits.allow(448, None));
        assert!(
            !limits.allow(100, Some(100)),
            "nearly all descriptors are used"
        );
        assert!(limits.allow(99, Some(100)));
        assert!(limits.allow(15, Some(0)), "an operator can still connect");
    }

    #[test]
    fn pending_connections_leave_the_server_its_own() {
        let limits = ConnectionLimits::within(1024);
        let pending = limits.max_pending as u64;
        assert!(limits.max_descriptors + pending <= limits.streams.max_descriptors);
    }
}
