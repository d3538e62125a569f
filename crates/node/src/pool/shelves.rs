//! Who waits, who is claimed, who is on the way. Memory only; no I/O.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

use soulbox_runtime::WarmWish;
use soulbox_types::SandboxId;

use super::{PoolConfig, PoolStats, demand::Demand};

/// After a failure the next attempt waits, twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) id: SandboxId,
    /// Of what it was made; the server's own templates change theirs under the same name.
    pub(crate) build_id: String,
}

#[derive(Debug, Default)]
struct Shelf {
    ready: VecDeque<Member>,
    making: usize,
    /// The memory that one used when it was ready.
    measured: Option<u64>,
    demand: Demand,
    failures: u32,
    not_before: Option<Instant>,
}

#[derive(Debug)]
struct Claim {
    wish: WarmWish,
    until: Instant,
}

#[derive(Debug)]
pub(crate) struct Shelves {
    kinds: HashMap<WarmWish, Shelf>,
    claimed: HashMap<SandboxId, Claim>,
    /// Taken off their shelves to be ended.
    unwanted: Vec<SandboxId>,
    idle_for: Duration,
    claim_for: Duration,
    hits: u64,
    misses: u64,
    closed: bool,
}

impl Shelves {
    pub(super) fn new(config: &PoolConfig) -> Self {
        Self {
            kinds: HashMap::new(),
            claimed: HashMap::new(),
            unwanted: Vec::new(),
            idle_for: config.idle_for,
            claim_for: config.claim_for,
            hits: 0,
            misses: 0,
            closed: false,
        }
    }

    pub(super) fn stats(&self) -> PoolStats {
        PoolStats {
            ready: self.ready(),
            making: self.making(),
            hits: self.hits,
            misses: self.misses,
        }
    }

    fn ready(&self) -> usize {
        self.kinds.values().map(|shelf| shelf.ready.len()).sum()
    }

    fn making(&self) -> usize {
        self.kinds.values().map(|shelf| shelf.making).sum()
    }

    pub(super) fn note_demand(&mut self, wish: &WarmWish, now: Instant) {
        let idle_for = self.idle_for;
        let shelf = self.kinds.entry(wish.clone()).or_default();
        shelf.demand.note(now, idle_for);
    }

    /// The longest waiting one that serves; those that do not any more are let go.
    pub(super) fn claim(
        &mut self,
        wish: &WarmWish,
        build_id: &str,
        now: Instant,
        serves: impl Fn(&SandboxId) -> bool,
    ) -> Option<SandboxId> {
        let shelf = self.kinds.get_mut(wish)?;
        while let Some(member) = shelf.ready.pop_front() {
            if member.build_id != build_id || !serves(&member.id) {
                self.unwanted.push(member.id);
                continue;
            }
            self.hits += 1;
            let claim = Claim {
                wish: wish.clone(),
                until: now + self.claim_for,
            };
            self.claimed.insert(member.id.clone(), claim);
            return Some(member.id);
        }
        self.misses += 1;
        None
    }

    /// The claim is used up: nobody else can use it.
    pub(super) fn redeem(&mut self, id: &SandboxId) -> Option<WarmWish> {
        self.claimed.remove(id).map(|claim| claim.wish)
    }

    pub(super) fn measured(&mut self, wish: &WarmWish, bytes: u64) {
        if let Some(shelf) = self.kinds.get_mut(wish) {
            shelf.measured = Some(bytes);
        }
    }

    /// The memory that those on the way will use, and one more of this kind.
    pub(super) fn expected(&self, one_more: &WarmWish, guess: impl Fn(&WarmWish) -> u64) -> u64 {
        let each = |(wish, shelf): (&WarmWish, &Shelf)| {
            let count = shelf.making + usize::from(wish == one_more);
            match count {
                0 => 0,
                count => {
                    let each = shelf.measured.unwrap_or_else(|| guess(wish));
                    each.saturating_mul(count as u64)
                }
            }
        };
        self.kinds.iter().map(each).sum()
    }

    /// One of this kind is on the way.
    pub(super) fn begin(&mut self, wish: &WarmWish) {
        self.kinds.entry(wish.clone()).or_default().making += 1;
    }

    /// `None`: it failed. `false`: there is no place for it (any more).
    pub(super) fn made(&mut self, wish: &WarmWish, member: Option<Member>, now: Instant) -> bool {
        let Some(shelf) = self.kinds.get_mut(wish) else {
            return false;
        };
        shelf.making = shelf.making.saturating_sub(1);
        match member {
            Some(member) if !self.closed => {
                shelf.ready.push_back(member);
                true
            }
            Some(_) => false,
            None => {
                self.failed(wish, now);
                false
            }
        }
    }

    pub(super) fn failed(&mut self, wish: &WarmWish, now: Instant) {
        if let Some(shelf) = self.kinds.get_mut(wish) {
            let pause = FIRST_PAUSE * 2_u32.saturating_pow(shelf.failures.min(16));
            shelf.failures += 1;
            shelf.not_before = now.checked_add(pause.min(LONGEST_PAUSE));
        }
    }

    /// One of this kind serves a user: whatever failed before is mended.
    pub(super) fn served(&mut self, wish: &WarmWish) {
        if let Some(shelf) = self.kinds.get_mut(wish) {
            shelf.failures = 0;
            shelf.not_before = None;
        }
    }

    /// Of which kind it was, if it waited or was claimed.
    pub(super) fn forget(&mut self, id: &SandboxId) -> Option<WarmWish> {
        if let Some(claim) = self.claimed.remove(id) {
            return Some(claim.wish);
        }
        for (wish, shelf) in &mut self.kinds {
            if let Some(place) = shelf.ready.iter().position(|member| member.id == *id) {
                shelf.ready.remove(place);
                return Some(wish.clone());
            }
        }
        None
    }

    pub(super) fn retire(&mut self, build: &str) {
        for shelf in self.kinds.values_mut() {
            let (old, kept) = shelf
                .ready
                .drain(..)
                .partition(|member| member.build_id == build);
            shelf.ready = kept;
            self.unwanted
                .extend(old.into_iter().map(|member: Member| member.id));
        }
        self.kinds
            .retain(|wish, _| wish.build.as_deref() != Some(build));
    }

    /// Nobody waits any more, and nobody will.
    pub(super) fn close(&mut self) {
        self.closed = true;
        self.kinds.clear();
        self.claimed.clear();
    }

    /// Takes off their shelves: who is too many, whose build is not `current` any more, and whose
    /// claim was not used. Returns everybody to end.
    pub(super) fn sweep(
        &mut self,
        config: &PoolConfig,
        now: Instant,
        current: impl Fn(&WarmWish) -> Option<String>,
    ) -> Vec<SandboxId> {
        for (wish, shelf) in &mut self.kinds {
            let build = current(wish);
            let target = shelf.demand.target(now, config.max_per_template);
            let (kept, mut old): (VecDeque<_>, VecDeque<_>) = shelf
                .ready
                .drain(..)
                .partition(|member| Some(&member.build_id) == build.as_ref());
            shelf.ready = kept;
            while shelf.ready.len() > target {
                old.extend(shelf.ready.pop_front());
            }
            self.unwanted
                .extend(old.into_iter().map(|member| member.id));
        }
        self.kinds.retain(|_, shelf| {
            shelf.making > 0 || !shelf.ready.is_empty() || !shelf.demand.is_over(now)
        });
        let late = self.claimed.extract_if(|_, claim| now >= claim.until);
        self.unwanted.extend(late.map(|(id, _)| id));
        std::mem::take(&mut self.unwanted)
    }

    /// The kind that lacks most, when there is room for one more. Of a full pool, the kind that
    /// has most makes room for one that has none.
    pub(super) fn lacking(&mut self, config: &PoolConfig, now: Instant) -> Option<WarmWish> {
        if self.closed {
            return None;
        }
        let full = self.ready() + self.making() >= config.max_total;
        let lacks = self.kinds.iter_mut().filter_map(|(wish, shelf)| {
            if shelf.not_before.is_some_and(|time| now < time) {
                return None;
            }
            let target = shelf.demand.target(now, config.max_per_template);
            let has = shelf.ready.len() + shelf.making;
            let missing = target.saturating_sub(has);
            (missing > 0 && (has == 0 || !full)).then(|| (missing, wish.clone()))
        });
        let (_, wish) = lacks.max_by_key(|(missing, _)| *missing)?;
        if full {
            let fullest = self.kinds.values_mut().max_by_key(|s| s.ready.len())?;
            if fullest.ready.len() < 2 {
                return None;
            }
            let given_up = fullest.ready.pop_front();
            self.unwanted.extend(given_up.map(|member| member.id));
        }
        Some(wish)
    }

    /// Takes one that waits off its shelf, for somebody who needs its place more.
    pub(super) fn give_up_one(&mut self) -> Option<SandboxId> {
        let fullest = self.kinds.values_mut().max_by_key(|s| s.ready.len())?;
        fullest.ready.pop_front().map(|member| member.id)
    }

    pub(super) fn give_up_all(&mut self) -> Vec<SandboxId> {
        let all = self.kinds.values_mut().flat_map(|s| s.ready.drain(..));
        all.map(|member| member.id).collect()
    }

    pub(super) fn waiting(&self) -> Vec<SandboxId> {
        let members = self.kinds.values().flat_map(|shelf| &shelf.ready);
        members.map(|member| member.id.clone()).collect()
    }
}
