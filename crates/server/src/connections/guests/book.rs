//! The list of guests. Everything here is done under one lock, and quickly.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::connections::places::Places;

/// A client that connects to ask something has asked by then.
const SILENCE: Duration = Duration::from_secs(1);
/// Told to leave at a time: HTTP/2 takes a round trip to part.
const MOST_LEAVING: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    /// Has not asked anything yet.
    Silent,
    Busy,
    /// Between two requests.
    Idle,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct GuestStats {
    pub(crate) silent: usize,
    pub(crate) busy: usize,
    pub(crate) idle: usize,
    /// Closed to make room.
    pub(crate) gave_way: u64,
    /// Closed on arrival: all others were busy.
    pub(crate) refused: u64,
    /// Closed since the first request did not come.
    pub(crate) never_asked: u64,
}

#[derive(Debug)]
struct Entry {
    neighbours: IpAddr,
    leave: CancellationToken,
    underway: usize,
    asked: bool,
    /// When it entered, or fell idle.
    since: Instant,
    /// Its key in `idle`.
    turn: u64,
    leaving: bool,
}

#[derive(Debug, Default)]
pub(super) struct Book {
    entries: HashMap<u64, Entry>,
    next: u64,
    /// In order of arrival.
    silent: BTreeSet<u64>,
    /// In the order in which they fell idle.
    idle: BTreeMap<u64, u64>,
    per_neighbours: HashMap<IpAddr, usize>,
    /// Those who have more than half of all places, of whom there can be only one.
    crowding: Option<IpAddr>,
    leaving: usize,
    left: u64,
    stats: GuestStats,
}

impl Book {
    pub(super) fn open(&self) -> usize {
        self.entries.len()
    }

    /// How many have left until now.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    pub(super) fn enter(&mut self, address: IpAddr, places: &Places) -> (u64, CancellationToken) {
        let number = self.turn();
        let (neighbours, leave) = (neighbours(address), CancellationToken::new());
        self.entries.insert(
            number,
            Entry {
                neighbours,
                leave: leave.clone(),
                underway: 0,
                asked: false,
                since: Instant::now(),
                turn: number,
                leaving: false,
            },
        );
        self.silent.insert(number);
        let count = self.per_neighbours.entry(neighbours).or_default();
        *count += 1;
        if *count > places.most / 2 {
            self.crowding = Some(neighbours);
        }
        (number, leave)
    }

    pub(super) fn leave(&mut self, number: u64, places: &Places) {
        let Some(entry) = self.entries.remove(&number) else {
            return;
        };
        self.left += 1;
        self.silent.remove(&number);
        self.idle.remove(&entry.turn);
        if entry.leaving {
            self.leaving -= 1;
            self.stats.gave_way += 1;
        }
        let count = self.per_neighbours.entry(entry.neighbours).or_default();
        *count = count.saturating_sub(1);
        if *count <= places.most / 2 && self.crowding == Some(entry.neighbours) {
            self.crowding = None;
        }
        if *count == 0 {
            self.per_neighbours.remove(&entry.neighbours);
        }
    }

    pub(super) fn begin(&mut self, number: u64, asked: bool) {
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        entry.underway += 1;
        entry.asked |= asked;
        // It asked in the same moment as we did; the request goes first.
        if std::mem::take(&mut entry.leaving) {
            self.leaving -= 1;
        }
        self.silent.remove(&number);
        self.idle.remove(&entry.turn);
    }

    /// `true` when it could be asked to leave from now on.
    pub(super) fn finish(&mut self, number: u64) -> bool {
        let turn = self.turn();
        let Some(entry) = self.entries.get_mut(&number) else {
            return false;
        };
        entry.underway = entry.underway.saturating_sub(1);
        if entry.underway > 0 {
            return false;
        }
        if entry.asked {
            entry.since = Instant::now();
            entry.turn = turn;
            self.idle.insert(turn, number);
        } else {
            self.silent.insert(number);
        }
        true
    }

    /// Asks as many as can be waited for at a time. `newcomer`: for whom.
    pub(super) fn ask_to_leave(&mut self, newcomer: Option<IpAddr>, places: &Places) {
        let at_once = (places.most / MOST_LEAVING).clamp(1, MOST_LEAVING);
        let newcomer = newcomer.map(neighbours);
        while self.leaving < at_once {
            let chosen = match self.crowding {
                None => self.next_to_leave(None),
                // Who has most of the places does not get others' too.
                crowding if crowding == newcomer => self.next_to_leave(crowding),
                crowding => self
                    .next_to_leave(crowding)
                    .or_else(|| self.next_to_leave(None)),
            };
            let Some(entry) = chosen.and_then(|number| {
                self.silent.remove(&number);
                self.entries.get_mut(&number)
            }) else {
                return;
            };
            self.idle.remove(&entry.turn);
            entry.leaving = true;
            entry.leave.cancel();
            self.leaving += 1;
        }
    }

    fn next_to_leave(&self, of: Option<IpAddr>) -> Option<u64> {
        let suits = |number: &&u64| {
            let entry = self.entries.get(number);
            entry.is_some_and(|entry| of.is_none_or(|of| of == entry.neighbours))
        };
        let silent = self.silent.iter().find(suits);
        let is_mute = |number: &&u64| {
            let entry = self.entries.get(number);
            entry.is_some_and(|entry| entry.since.elapsed() >= SILENCE)
        };
        silent
            .filter(is_mute)
            .or_else(|| self.idle.values().find(suits))
            .or(silent)
            .copied()
    }

    pub(super) fn mood(&self, number: u64) -> (Mood, Instant) {
        match self.entries.get(&number) {
            Some(entry) if entry.underway > 0 => (Mood::Busy, Instant::now()),
            Some(entry) if entry.asked => (Mood::Idle, entry.since),
            Some(entry) => (Mood::Silent, entry.since),
            None => (Mood::Idle, Instant::now()),
        }
    }

    pub(super) fn refused(&mut self) {
        self.stats.refused += 1;
    }

    pub(super) fn never_asked(&mut self) {
        self.stats.never_asked += 1;
    }

    pub(super) fn stats(&self) -> GuestStats {
        let (silent, idle) = (self.silent.len(), self.idle.len());
        GuestStats {
            silent,
            idle,
            busy: self.entries.len() - silent - idle - self.leaving,
            ..self.stats
        }
    }

    fn turn(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// One host may have a whole /64 of IPv6.
fn neighbours(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) >> 64 << 64;
            Ipv6Addr::from(network).into()
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}
