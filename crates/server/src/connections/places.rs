//! How many connections of clients there may be, and streams on them, so that the server keeps
//! descriptors for its own work.
//!
//! The limit of open files is shared by four: sandboxes, which the door of the node lets in until
//! an eighth (at most 1024) is left; clients' connections; their streams, each of which takes a
//! descriptor for its way into a sandbox; and the server's own work: its database, pipes to new
//! sandboxes, images.
//!
//! ```text
//! 0                              limit - 1/8     limit - 3/32    limit - 1/16     limit
//! ├─ sandboxes and all the others ────┼─ connections, ──┼── streams ───┼── own work ──┤
//! │                                   │  newcomers      │              │              │
//! ```
//!
//! Connections and streams have at most half of the first part each in number, whatever is free,
//! so that silent or greedy ones never keep sandboxes out alone.

use rustix::process::{Resource, getrlimit};
use soulbox_proxy::WayLimits;

const RESERVED_PART: u64 = 8;
const MOST_RESERVED: u64 = 1024;
/// Each costs some kilobytes, asked or not.
const MOST: usize = 32_768;
/// So many are let in however crowded it is: somebody has to be able to end what crowds it.
const LEAST: usize = 16;
/// Half of what connections have before streams, as they hold descriptors too.
const WAITING_PART: u64 = 8;
const MOST_WAITING: u64 = 128;

/// What the machine has for clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Places {
    /// Connections at a time.
    pub(crate) most: usize,
    /// From this descriptor on, somebody has to leave before somebody comes. The kernel gives out
    /// the lowest number that is free, so a number says how many are in use.
    pub(crate) crowded_from: u64,
    /// Newcomers who wait for a place, at a time.
    pub(crate) waiting: usize,
    /// Streams at a time.
    pub(crate) ways: WayLimits,
}

impl Places {
    pub(crate) fn of_this_process() -> Self {
        match getrlimit(Resource::Nofile).current {
            Some(limit) => Self::within(limit),
            None => Self::within(u64::MAX),
        }
    }

    fn within(limit: u64) -> Self {
        let reserved = (limit / RESERVED_PART).min(MOST_RESERVED);
        let half = usize::try_from((limit - reserved) / 2).unwrap_or(usize::MAX);
        let most = half.clamp(LEAST, MOST);
        let waiting = (reserved / WAITING_PART).clamp(2, MOST_WAITING);
        Self {
            most,
            crowded_from: limit - reserved / 4 * 3,
            waiting: usize::try_from(waiting).unwrap_or(LEAST),
            ways: WayLimits {
                most,
                descriptors: limit - reserved / 2,
            },
        }
    }

    /// Whether one more may come as things are.
    pub(super) fn has_room(&self, open: usize, descriptor: u64) -> bool {
        open < self.most && (descriptor < self.crowded_from || open < LEAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_and_streams_have_half_each_of_what_is_not_kept_for_the_server() {
        let places = Places::within(1024);
        assert_eq!((places.most, places.ways.most), (448, 448));
        assert_eq!((places.crowded_from, places.ways.descriptors), (928, 960));
        assert_eq!(places.waiting, 16);
        let places = Places::within(20_000);
        assert_eq!((places.most, places.ways.most), (9488, 9488));
        assert_eq!(places.waiting, 128);
        assert_eq!(Places::within(1 << 20).most, MOST);
        assert_eq!(Places::within(u64::MAX).most, MOST);
        assert_eq!(Places::within(8).most, LEAST);
    }

    #[test]
    fn what_sandboxes_use_leaves_less_room_but_never_none() {
        let places = Places::within(1024);
        assert!(places.has_room(447, 900) && !places.has_room(448, 900));
        assert!(!places.has_room(100, 928), "the table is nearly full");
        assert!(places.has_room(15, 1000), "an operator can still get in");
    }

    #[test]
    fn newcomers_who_wait_leave_the_server_its_own() {
        let places = Places::within(1024);
        assert!(places.crowded_from + places.waiting as u64 <= places.ways.descriptors);
    }
}
