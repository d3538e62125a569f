//! The list of guests. Everything here is done under one lock, and quickly.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{queue::Queue, vacancies::Vacancies};
use crate::connections::places::Places;

/// A client that connects to ask something has asked by then.
const SILENCE: Duration = Duration::from_secs(1);
/// Longer than a busy client or a bad line takes to read again.
const NOT_READING: Duration = Duration::from_secs(30);
/// For those who have more than half of all places, when somebody else comes: they have to make the
/// room. Among themselves, clients behind one proxy perhaps, they have as much time as anybody.
const CROWD_NOT_READING: Duration = Duration::from_secs(5);
/// Of all places, so much is for those who have not asked yet. More of them than that push out each
/// other, not those who ask now and then.
const SILENT_PART: usize = 4;
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
    /// In the middle of something that the client does not read.
    pub(crate) stalled: usize,
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
    /// The socket takes no bytes.
    deaf: bool,
    /// Of what is underway, answers that go on when the client has taken more.
    held: usize,
    unread: Option<Unread>,
    cut: CancellationToken,
}

/// Since when a client has taken nothing, while something waits for it. Only taking makes it begin
/// anew: who asks for more of what it does not read would hold its place for ever otherwise.
#[derive(Debug, Clone, Copy)]
struct Unread {
    since: Instant,
    /// Its key in `stalled`, when all that is underway waits for the client.
    turn: u64,
}

/// A place in the book.
#[derive(Debug)]
pub(super) struct Entered {
    pub(super) number: u64,
    pub(super) leave: CancellationToken,
    pub(super) cut: CancellationToken,
}

#[derive(Debug, Default)]
pub(super) struct Book {
    pub(super) queue: Queue,
    pub(super) vacancies: Vacancies,
    entries: HashMap<u64, Entry>,
    next: u64,
    /// In order of arrival.
    silent: BTreeSet<u64>,
    /// In the order in which they fell idle.
    idle: BTreeMap<u64, u64>,
    /// In the order in which they last read something.
    stalled: BTreeMap<u64, u64>,
    per_neighbours: HashMap<IpAddr, usize>,
    /// Those who have more than half of all places, of whom there can be only one.
    crowding: Option<IpAddr>,
    /// Those who were asked to.
    leaving: BTreeSet<u64>,
    stats: GuestStats,
}

impl Book {
    /// `None` when there is no room for a descriptor of this number.
    pub(super) fn enter(
        &mut self,
        neighbours: IpAddr,
        descriptor: u64,
        places: &Places,
    ) -> Option<Entered> {
        let descriptor = self.vacancies.in_place_of(descriptor);
        if !places.has_room(self.entries.len(), descriptor) {
            return None;
        }
        self.vacancies.take();
        let entered = Entered {
            number: self.turn(),
            leave: CancellationToken::new(),
            cut: CancellationToken::new(),
        };
        let number = entered.number;
        self.entries.insert(
            number,
            Entry {
                neighbours,
                leave: entered.leave.clone(),
                underway: 0,
                asked: false,
                since: Instant::now(),
                turn: number,
                deaf: false,
                held: 0,
                unread: None,
                cut: entered.cut.clone(),
            },
        );
        self.silent.insert(number);
        let count = self.per_neighbours.entry(neighbours).or_default();
        *count += 1;
        if *count > places.most / 2 {
            self.crowding = Some(neighbours);
        }
        Some(entered)
    }

    pub(super) fn leave(&mut self, number: u64, places: &Places) {
        let Some(entry) = self.entries.remove(&number) else {
            return;
        };
        self.vacancies.somebody_left();
        self.silent.remove(&number);
        self.idle.remove(&entry.turn);
        if let Some(unread) = entry.unread {
            self.stalled.remove(&unread.turn);
        }
        if self.leaving.remove(&number) {
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

    /// A request.
    pub(super) fn begin(&mut self, number: u64) {
        self.becomes_busy(number);
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.asked = true;
        }
        self.settle(number);
    }

    fn becomes_busy(&mut self, number: u64) {
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        entry.underway += 1;
        if !entry.cut.is_cancelled() {
            // It asked in the same moment as we did; the request goes first.
            self.leaving.remove(&number);
        }
        self.silent.remove(&number);
        self.idle.remove(&entry.turn);
    }

    /// The socket takes no bytes.
    pub(super) fn stall(&mut self, number: u64) {
        self.becomes_busy(number);
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.deaf = true;
        }
        self.settle(number);
    }

    /// It does again. `true` when the guest could be asked to leave from now on.
    pub(super) fn flows(&mut self, number: u64) -> bool {
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.deaf = false;
        }
        self.takes(number);
        self.finish(number)
    }

    /// An answer goes on when the client has taken more of it.
    pub(super) fn hold(&mut self, number: u64) {
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.held += 1;
        }
        self.settle(number);
    }

    /// It does not depend on the client any more.
    pub(super) fn release(&mut self, number: u64) {
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.held = entry.held.saturating_sub(1);
        }
        self.settle(number);
    }

    /// The client has taken bytes of an answer.
    pub(super) fn takes(&mut self, number: u64) {
        if let Some(entry) = self.entries.get_mut(&number)
            // What the socket does not take has only gone into a buffer of ours.
            && !entry.deaf
            && !entry.cut.is_cancelled()
            && let Some(unread) = entry.unread.take()
        {
            self.stalled.remove(&unread.turn);
            self.settle(number);
        }
    }

    /// Notes whether something waits for the client, and whether all that is underway does.
    fn settle(&mut self, number: u64) {
        let turn = self.turn();
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        if entry.cut.is_cancelled() {
            // That is final.
            return;
        }
        if !entry.deaf && entry.held == 0 {
            if let Some(unread) = entry.unread.take() {
                self.stalled.remove(&unread.turn);
            }
            return;
        }
        let since = Instant::now();
        let unread = *entry.unread.get_or_insert(Unread { since, turn });
        if entry.deaf || entry.held == entry.underway {
            self.stalled.insert(unread.turn, number);
        } else {
            self.stalled.remove(&unread.turn);
        }
    }

    /// `true` when it could be asked to leave from now on.
    pub(super) fn finish(&mut self, number: u64) -> bool {
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.underway = entry.underway.saturating_sub(1);
        }
        self.settle(number);
        let turn = self.turn();
        let Some(entry) = self.entries.get_mut(&number) else {
            return false;
        };
        if entry.underway > 0 || self.leaving.contains(&number) {
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

    /// Asks as many as can be waited for at a time. `newcomer`: for whose neighbour. `false` when
    /// nobody leaves for it.
    pub(super) fn ask_to_leave(&mut self, newcomer: Option<IpAddr>, places: &Places) -> bool {
        let at_once = (places.most / MOST_LEAVING).clamp(1, MOST_LEAVING);
        let is_crowd = self.crowding.is_some() && self.crowding == newcomer;
        // Who has most of the places does not get others' too.
        let suits = |number: &u64| !is_crowd || self.is_of(*number, newcomer);
        let mut leaves = self.leaving.iter().any(suits);
        let patience = match (self.crowding, newcomer) {
            (Some(_), Some(_)) if !is_crowd => CROWD_NOT_READING,
            _ => NOT_READING,
        };
        while self.leaving.len() < at_once {
            let mut chosen = self.next_to_leave(self.crowding, patience, places);
            if chosen.is_none() && !is_crowd {
                chosen = self.next_to_leave(None, NOT_READING, places);
            }
            let Some(number) = chosen else { break };
            self.part_with(number);
            leaves = true;
        }
        leaves
    }

    fn part_with(&mut self, number: u64) {
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        self.silent.remove(&number);
        self.idle.remove(&entry.turn);
        match entry.unread {
            None => entry.leave.cancel(),
            Some(unread) => {
                self.stalled.remove(&unread.turn);
                entry.cut.cancel();
            }
        }
        self.leaving.insert(number);
    }

    fn next_to_leave(
        &self,
        of: Option<IpAddr>,
        patience: Duration,
        places: &Places,
    ) -> Option<u64> {
        let suits = |number: &u64| self.is_of(*number, of);
        let silent = self.silent.iter().copied().find(suits);
        let many = self.silent.len() > places.most / SILENT_PART;
        let gives_way = |number: &u64| many || self.is_mute(*number);
        silent
            .filter(gives_way)
            .or_else(|| self.longest_at_rest(suits, patience))
            .or(silent)
    }

    fn is_of(&self, number: u64, of: Option<IpAddr>) -> bool {
        let entry = self.entries.get(&number);
        entry.is_some_and(|entry| of.is_none_or(|of| of == entry.neighbours))
    }

    fn is_mute(&self, number: u64) -> bool {
        let entry = self.entries.get(&number);
        entry.is_some_and(|entry| entry.since.elapsed() >= SILENCE)
    }

    /// Who does nothing, or has not read anything, since the earliest moment.
    fn longest_at_rest(&self, suits: impl Fn(&u64) -> bool, patience: Duration) -> Option<u64> {
        let is_long = |number: &u64| {
            let unread = self.entries.get(number).and_then(|entry| entry.unread);
            unread.is_some_and(|unread| unread.since.elapsed() >= patience)
        };
        let idle = self.idle.iter().find(|(_, number)| suits(number));
        let stalled = self.stalled.iter().find(|(_, number)| suits(number));
        let stalled = stalled.filter(|(_, number)| is_long(number));
        let earliest = idle.into_iter().chain(stalled).min();
        earliest.map(|(_, number)| *number)
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
        let stalled = self.stalled.len();
        GuestStats {
            silent,
            idle,
            stalled,
            busy: self.entries.len() - silent - idle - stalled - self.leaving.len(),
            ..self.stats
        }
    }

    fn turn(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}
