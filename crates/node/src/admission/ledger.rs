//! The latest look at the machine, and what is set aside for sandboxes that do not use it yet.
//! Arithmetic only.

use std::time::Duration;

use tokio::time::Instant;

use super::{Level, Reading, Resource, resource::Shortage};

/// A look serves everybody for so long.
pub(super) const FRESH: Duration = Duration::from_millis(50);
/// And for so long those who leave plenty.
const OLD: Duration = Duration::from_secs(3);
/// More than what can vanish before the next look, mostly; the slice is there for the rest.
const PLENTY: Need = Need {
    memory: 1 << 30,
    threads: 1000,
    files: 500,
};

/// What a sandbox will use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Need {
    pub(super) memory: u64,
    pub(super) threads: u64,
    pub(super) files: u64,
}

impl Need {
    fn of(&self, resource: Resource) -> u64 {
        match resource {
            Resource::Memory => self.memory,
            Resource::Threads => self.threads,
            Resource::Files => self.files,
            _ => 0,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            memory: self.memory.saturating_add(other.memory),
            threads: self.threads.saturating_add(other.threads),
            files: self.files.saturating_add(other.files),
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            memory: self.memory.saturating_sub(other.memory),
            threads: self.threads.saturating_sub(other.threads),
            files: self.files.saturating_sub(other.files),
        }
    }
}

/// Why somebody is not let in.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The machine has to be looked at first.
    Unsure,
    Shortage(Shortage),
}

#[derive(Debug)]
pub(super) struct Ledger {
    reading: Reading,
    taken: Instant,
    /// `changes` when it was taken.
    seen: u64,
    /// How often something ended that the next look would not find any more.
    changes: u64,
    /// For sandboxes that are being made.
    reserved: Need,
    /// Of those that were made since the last look, which cannot have seen all that they use.
    settling: Need,
    pub(super) short_since: Option<Instant>,
}

/// What a look must not take off: it came later.
#[derive(Debug, Clone, Copy)]
pub(super) struct Before {
    at: Instant,
    changes: u64,
    settling: Need,
}

impl Ledger {
    pub(super) fn new(reading: Reading, taken: Instant) -> Self {
        Self {
            reading,
            taken,
            seen: 0,
            changes: 0,
            reserved: Need::default(),
            settling: Need::default(),
            short_since: None,
        }
    }

    pub(super) fn taken(&self) -> Instant {
        self.taken
    }

    pub(super) fn before_a_look(&self, now: Instant) -> Before {
        Before {
            at: now,
            changes: self.changes,
            settling: self.settling,
        }
    }

    pub(super) fn levels(&self) -> &[Level] {
        &self.reading.levels
    }

    pub(super) fn looked(&mut self, reading: Reading, before: Before) {
        self.reading = reading;
        self.taken = before.at;
        self.seen = before.changes;
        self.settling = self.settling.minus(before.settling);
    }

    pub(super) fn changed(&mut self) {
        self.changes = self.changes.wrapping_add(1);
    }

    /// Whether one more fits. `Ok(true)`: it does, but somebody should look again. `decides`: the
    /// last look is good enough to refuse by.
    pub(super) fn check(&self, need: Need, now: Instant, decides: bool) -> Result<bool, Verdict> {
        let age = now.saturating_duration_since(self.taken);
        if decides || age <= FRESH {
            return match self.shortage_of(need, Need::default()) {
                None => Ok(false),
                Some(shortage) if decides || self.seen == self.changes => {
                    Err(Verdict::Shortage(shortage))
                }
                Some(_) => Err(Verdict::Unsure),
            };
        }
        if age <= OLD && self.shortage_of(need, PLENTY).is_none() {
            return Ok(true);
        }
        Err(Verdict::Unsure)
    }

    fn shortage_of(&self, need: Need, spare: Need) -> Option<Shortage> {
        let reserved = self.reserved.plus(self.settling);
        let is_short = |level: &&Level| {
            let more = need.plus(spare).plus(reserved).of(level.resource);
            need.of(level.resource) > 0 && level.used.saturating_add(more) > level.bound
        };
        let level = self.reading.levels.iter().find(is_short)?;
        let of = |need: &Need| need.of(level.resource);
        Some(Shortage::level(
            level.resource,
            level.whose,
            of(&need),
            of(&reserved),
            level.used,
            level.bound,
        ))
    }

    pub(super) fn reserve(&mut self, need: Need) {
        self.reserved = self.reserved.plus(need);
    }

    /// It is made, or will not be.
    pub(super) fn settle(&mut self, need: Need) {
        self.reserved = self.reserved.minus(need);
        self.settling = self.settling.plus(need);
        self.changed();
    }

    #[cfg(test)]
    pub(super) fn reserved(&self) -> (Need, Need) {
        (self.reserved, self.settling)
    }
}

#[cfg(test)]
mod tests;
