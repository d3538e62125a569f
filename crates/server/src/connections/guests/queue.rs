//! Newcomers who wait until somebody finishes. They hold descriptors as well, so few may, and few
//! of one neighbourhood: a crowd that waits for its own does not fill the queue.

use std::{collections::HashMap, net::IpAddr};

use crate::connections::places::Places;

#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: usize,
    per_neighbours: HashMap<IpAddr, usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Joined {
    Yes,
    /// Too many of anybody wait.
    NotNow,
    /// Too many of its own wait.
    No,
}

impl Queue {
    pub(super) fn join(&mut self, neighbours: IpAddr, places: &Places) -> Joined {
        let own = self.per_neighbours.get(&neighbours).copied().unwrap_or(0);
        if own >= places.waiting.div_ceil(2) {
            return Joined::No;
        }
        if self.waiting >= places.waiting {
            return Joined::NotNow;
        }
        self.waiting += 1;
        self.per_neighbours.insert(neighbours, own + 1);
        Joined::Yes
    }

    pub(super) fn quit(&mut self, neighbours: IpAddr) {
        self.waiting = self.waiting.saturating_sub(1);
        if let Some(own) = self.per_neighbours.get_mut(&neighbours) {
            *own -= 1;
            if *own == 0 {
                self.per_neighbours.remove(&neighbours);
            }
        }
    }
}
