//! Who is ready, who is reserved, who is on the way. Memory only; no I/O.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use soulbox_runtime::PoolKey;
use soulbox_types::{SandboxId, SandboxState};
use tokio::sync::watch;

use super::{PoolConfig, PoolStats, demand::Demand};

/// After a failure the next attempt waits, twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(5);
/// Users go first, or the machine is full: nothing is wrong with the kind.
const NO_ROOM_PAUSE: Duration = Duration::from_millis(250);

/// Of all warm sandboxes, the part that a kind may have in members of which nobody knows whether they get
/// ready.
const UNPROVEN_PART: usize = 4;
const LEAST_UNPROVEN: usize = 2;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) id: SandboxId,
    /// Of what it was made; the server's own templates change theirs under the same name.
    pub(crate) build_id: String,
}

/// A member that is being made. Whoever makes it holds it until it is ready or has failed.
#[derive(Debug)]
pub(super) struct Starting {
    member: Member,
    reserved: AtomicBool,
    /// Turns true when it is; dropped before that when it fails.
    ready: watch::Sender<bool>,
}

impl Starting {
    pub(super) fn build_id(&self) -> &str {
        &self.member.build_id
    }

    /// A create waits for it.
    pub(super) fn is_reserved(&self) -> bool {
        self.reserved.load(Ordering::SeqCst)
    }
}

/// What came of making one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Making {
    Ready,
    /// It was not begun, since others go first.
    NoRoom,
    Failed,
}

/// What becomes of a member whose making is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Made {
    /// It waits for a create.
    Ready,
    /// It is up to the create that has reserved it.
    Reserved,
    /// There is no place for it (any more), or it failed.
    Unwanted,
}

#[derive(Debug, Default)]
struct Kind {
    ready: VecDeque<Member>,
    /// On the way for nobody in particular, those among them that have not begun included.
    making: usize,
    /// Those of them that have begun, the oldest first.
    starting: VecDeque<Arc<Starting>>,
    /// Whether the last one did: of a kind of which that is not known, few are made at a time.
    gets_ready: bool,
    /// The memory that one used when it was ready.
    measured: Option<u64>,
    demand: Demand,
    failures: u32,
    not_before: Option<Instant>,
}

/// A member that is promised to one create.
#[derive(Debug)]
pub(super) struct WarmReservation {
    pub(super) key: PoolKey,
    /// Of one that was reserved before it was ready.
    pub(super) ready: Option<watch::Receiver<bool>>,
    until: Instant,
}

impl WarmReservation {
    pub(super) fn is_ready(&self) -> bool {
        self.ready.as_ref().is_none_or(|ready| *ready.borrow())
    }
}

#[derive(Debug)]
pub(crate) struct WarmPool {
    kinds: HashMap<PoolKey, Kind>,
    reserved: HashMap<SandboxId, WarmReservation>,
    /// To be ended.
    unwanted: Vec<SandboxId>,
    idle_for: Duration,
    reserved_for: Duration,
    hits: u64,
    misses: u64,
    closed: bool,
}

impl WarmPool {
    pub(super) fn new(config: &PoolConfig) -> Self {
        Self {
            kinds: HashMap::new(),
            reserved: HashMap::new(),
            unwanted: Vec::new(),
            idle_for: config.idle_for,
            reserved_for: config.reserved_for,
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
        self.kinds.values().map(|kind| kind.ready.len()).sum()
    }

    fn making(&self) -> usize {
        self.kinds.values().map(|kind| kind.making).sum()
    }

    pub(super) fn note_demand(&mut self, key: &PoolKey, now: Instant) {
        let idle_for = self.idle_for;
        let kind = self.kinds.entry(key.clone()).or_default();
        kind.demand.note(now, idle_for);
    }

    /// The longest waiting one that serves or, if there is none, the one whose making is furthest.
    /// Those that are ready and do not serve any more are let go. `state_of`: of one that is
    /// nobody's.
    pub(super) fn reserve(
        &mut self,
        key: &PoolKey,
        build_id: &str,
        now: Instant,
        state_of: impl Fn(&SandboxId) -> Option<SandboxState>,
    ) -> Option<SandboxId> {
        let kind = self.kinds.get_mut(key)?;
        while let Some(member) = kind.ready.pop_front() {
            if member.build_id == build_id && state_of(&member.id) == Some(SandboxState::Running) {
                return Some(self.keep_for_create(key, member.id, None, now));
            }
            self.unwanted.push(member.id);
        }
        let is_here = |starting: &Arc<Starting>| {
            let state = state_of(&starting.member.id);
            starting.member.build_id == build_id
                && matches!(state, Some(SandboxState::Creating | SandboxState::Running))
        };
        if let Some(place) = kind.starting.iter().position(is_here)
            && let Some(starting) = kind.starting.remove(place)
        {
            kind.making = kind.making.saturating_sub(1);
            starting.reserved.store(true, Ordering::SeqCst);
            let (id, ready) = (starting.member.id.clone(), starting.ready.subscribe());
            return Some(self.keep_for_create(key, id, Some(ready), now));
        }
        self.misses += 1;
        None
    }

    fn keep_for_create(
        &mut self,
        key: &PoolKey,
        id: SandboxId,
        ready: Option<watch::Receiver<bool>>,
        now: Instant,
    ) -> SandboxId {
        self.hits += 1;
        let reservation = WarmReservation {
            key: key.clone(),
            ready,
            until: now + self.reserved_for,
        };
        self.reserved.insert(id.clone(), reservation);
        id
    }

    /// The reservation is used up: nobody else can use it.
    pub(super) fn redeem(&mut self, id: &SandboxId) -> Option<WarmReservation> {
        self.reserved.remove(id)
    }

    /// The reservation will not be used. Somebody may have written its id down, so nobody else gets it.
    pub(super) fn release(&mut self, id: &SandboxId) -> bool {
        let released = self.reserved.remove(id).is_some();
        if released {
            self.unwanted.push(id.clone());
        }
        released
    }

    pub(super) fn measured(&mut self, key: &PoolKey, bytes: u64) {
        if let Some(kind) = self.kinds.get_mut(key) {
            kind.measured = Some(bytes);
        }
    }

    /// The memory that those on the way will use, and one more of this kind.
    pub(super) fn expected(&self, one_more: &PoolKey, guess: impl Fn(&PoolKey) -> u64) -> u64 {
        let each = |(key, kind): (&PoolKey, &Kind)| {
            let count = kind.making + usize::from(key == one_more);
            match count {
                0 => 0,
                count => {
                    let each = kind.measured.unwrap_or_else(|| guess(key));
                    each.saturating_mul(count as u64)
                }
            }
        };
        self.kinds.iter().map(each).sum()
    }

    /// One of this kind is on the way.
    pub(super) fn begin(&mut self, key: &PoolKey) {
        self.kinds.entry(key.clone()).or_default().making += 1;
    }

    /// One that is on the way will not be made.
    pub(super) fn not_begun(&mut self, key: &PoolKey, now: Instant) {
        if let Some(kind) = self.kinds.get_mut(key) {
            kind.making = kind.making.saturating_sub(1);
        }
        self.failed(key, now);
    }

    /// One that is on the way begins, and can be reserved from now on.
    pub(super) fn start(&mut self, key: &PoolKey, member: Member) -> Arc<Starting> {
        let starting = Arc::new(Starting {
            member,
            reserved: AtomicBool::new(false),
            ready: watch::Sender::new(false),
        });
        if let Some(kind) = self.kinds.get_mut(key) {
            kind.starting.push_back(Arc::clone(&starting));
        }
        starting
    }

    /// Its making is over.
    pub(super) fn made(
        &mut self,
        key: &PoolKey,
        starting: &Arc<Starting>,
        outcome: Making,
        now: Instant,
    ) -> Made {
        let is_ready = outcome == Making::Ready;
        match (outcome, self.kinds.get_mut(key)) {
            (Making::Failed, _) => self.failed(key, now),
            (Making::Ready, Some(kind)) => kind.gets_ready = true,
            (Making::NoRoom, Some(kind)) => kind.not_before = now.checked_add(NO_ROOM_PAUSE),
            (Making::Ready | Making::NoRoom, None) => {}
        }
        if starting.is_reserved() {
            if is_ready {
                starting.ready.send_replace(true);
            }
            return Made::Reserved;
        }
        let Some(kind) = self.kinds.get_mut(key) else {
            return Made::Unwanted;
        };
        let is_it = |other: &Arc<Starting>| Arc::ptr_eq(other, starting);
        let Some(place) = kind.starting.iter().position(is_it) else {
            // Of a kind that was given up and came back.
            return Made::Unwanted;
        };
        kind.starting.remove(place);
        kind.making = kind.making.saturating_sub(1);
        if self.closed || !is_ready {
            return Made::Unwanted;
        }
        kind.ready.push_back(starting.member.clone());
        Made::Ready
    }

    /// One of this kind could not be made or used; the next attempt waits longer than the last.
    pub(super) fn failed(&mut self, key: &PoolKey, now: Instant) {
        if let Some(kind) = self.kinds.get_mut(key) {
            let pause = FIRST_PAUSE * 2_u32.saturating_pow(kind.failures.min(16));
            kind.failures += 1;
            kind.gets_ready = false;
            kind.not_before = now.checked_add(pause.min(LONGEST_PAUSE));
        }
    }

    /// One of this kind serves a user: whatever failed before is mended.
    pub(super) fn served(&mut self, key: &PoolKey) {
        if let Some(kind) = self.kinds.get_mut(key) {
            kind.failures = 0;
            kind.not_before = None;
        }
    }

    /// Of which kind it was, if it waited or was reserved.
    pub(super) fn forget(&mut self, id: &SandboxId) -> Option<PoolKey> {
        if let Some(reservation) = self.reserved.remove(id) {
            return Some(reservation.key);
        }
        for (key, kind) in &mut self.kinds {
            if let Some(place) = kind.ready.iter().position(|member| member.id == *id) {
                kind.ready.remove(place);
                return Some(key.clone());
            }
        }
        None
    }

    pub(super) fn retire(&mut self, build: &str) {
        for kind in self.kinds.values_mut() {
            let (old, kept) = kind
                .ready
                .drain(..)
                .partition(|member| member.build_id == build);
            kind.ready = kept;
            self.unwanted
                .extend(old.into_iter().map(|member: Member| member.id));
        }
        self.kinds
            .retain(|key, _| key.build.as_deref() != Some(build));
    }

    /// Nobody waits any more, and nobody will.
    pub(super) fn close(&mut self) {
        self.closed = true;
        self.kinds.clear();
        self.reserved.clear();
    }

    /// Takes out: who is too many, whose build is not `current` any more, and whose
    /// reservation was not used. Returns everybody to end.
    pub(super) fn sweep(
        &mut self,
        config: &PoolConfig,
        now: Instant,
        current: impl Fn(&PoolKey) -> Option<String>,
    ) -> Vec<SandboxId> {
        for (key, kind) in &mut self.kinds {
            let build = current(key);
            let target = kind.demand.target(now, config.max_per_template);
            let (kept, mut old): (VecDeque<_>, VecDeque<_>) = kind
                .ready
                .drain(..)
                .partition(|member| Some(&member.build_id) == build.as_ref());
            kind.ready = kept;
            while kind.ready.len() > target {
                old.extend(kind.ready.pop_front());
            }
            self.unwanted
                .extend(old.into_iter().map(|member| member.id));
        }
        self.kinds.retain(|_, kind| {
            kind.making > 0 || !kind.ready.is_empty() || !kind.demand.is_over(now)
        });
        let late = self
            .reserved
            .extract_if(|_, reservation| now >= reservation.until);
        self.unwanted.extend(late.map(|(id, _)| id));
        std::mem::take(&mut self.unwanted)
    }

    /// The kind that lacks most, when there is room for one more. Of a full pool, the kind that
    /// has most makes room for one that has none.
    pub(super) fn shortage_of(&mut self, config: &PoolConfig, now: Instant) -> Option<PoolKey> {
        if self.closed {
            return None;
        }
        let full = self.ready() + self.making() >= config.max_total;
        let unproven = (config.max_total / UNPROVEN_PART).max(LEAST_UNPROVEN);
        let is_short = self.kinds.iter_mut().filter_map(|(key, kind)| {
            if kind.not_before.is_some_and(|time| now < time) {
                return None;
            }
            // One that never gets ready must not keep others out.
            if !kind.gets_ready && kind.making >= unproven {
                return None;
            }
            let target = kind.demand.target(now, config.max_per_template);
            let has = kind.ready.len() + kind.making;
            let missing = target.saturating_sub(has);
            (missing > 0 && (has == 0 || !full)).then(|| (missing, key.clone()))
        });
        let (_, key) = is_short.max_by_key(|(missing, _)| *missing)?;
        if full {
            let fullest = self.kinds.values_mut().max_by_key(|s| s.ready.len())?;
            if fullest.ready.len() < 2 {
                return None;
            }
            let given_up = fullest.ready.pop_front();
            self.unwanted.extend(given_up.map(|member| member.id));
        }
        Some(key)
    }

    /// Takes out one that waits, for somebody who needs its place more.
    pub(super) fn give_up_one(&mut self) -> Option<SandboxId> {
        let fullest = self.kinds.values_mut().max_by_key(|s| s.ready.len())?;
        fullest.ready.pop_front().map(|member| member.id)
    }

    pub(super) fn give_up_all(&mut self) -> Vec<SandboxId> {
        let all = self.kinds.values_mut().flat_map(|s| s.ready.drain(..));
        all.map(|member| member.id).collect()
    }

    pub(super) fn waiting(&self) -> Vec<SandboxId> {
        let members = self.kinds.values().flat_map(|kind| &kind.ready);
        members.map(|member| member.id.clone()).collect()
    }
}
