//! Which sandboxes are live and whose they are. Everything else about them is asked of the node.
//!
//! ```text
//! reserve ─► Creating ─► Running ─► Ending ─► removed
//!               └── failed ──────────────────────┘
//! ```
//! `create` drives the first two steps, `ending` and `watch` the others. A paused one is `Running`
//! here: whether it is paused is asked of the node.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use parking_lot::Mutex;
use soulbox_types::{SandboxId, TenantId, UnixMillis};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nobody has been told its id: invisible.
    Creating,
    Running,
    Ending,
}

#[derive(Debug)]
struct Live {
    tenant: TenantId,
    phase: Phase,
    /// The node reported its end before `create` was done with it.
    ended_early: bool,
    /// It is still paused, but has its place among the running ones already.
    waking: bool,
    /// When it was paused last, as far as is known: its longest life counts from then.
    paused_at: Option<UnixMillis>,
    /// Held while it is paused, woken or its deadline is moved, so that "extend only" stays true.
    gate: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct Inner {
    live: HashMap<SandboxId, Live>,
    by_tenant: HashMap<TenantId, BTreeSet<SandboxId>>,
}

#[derive(Debug, Default)]
pub(crate) struct Registry {
    inner: Mutex<Inner>,
}

impl Registry {
    /// Takes a place among the tenant's `limit`. `false` when there is none. Those that rest need
    /// no place.
    pub(crate) fn reserve(
        &self,
        id: &SandboxId,
        tenant: &TenantId,
        limit: u32,
        is_paused: impl Fn(&SandboxId) -> bool,
    ) -> bool {
        let mut inner = self.inner.lock();
        // An id is given out once: nobody takes the place of a sandbox that is there.
        if inner.live.contains_key(id) || inner.is_full(tenant, limit, is_paused) {
            return false;
        }
        inner.insert(id, tenant, Phase::Creating, None);
        true
    }

    /// Whether there is one, just now.
    pub(crate) fn is_below_limit(
        &self,
        tenant: &TenantId,
        limit: u32,
        is_paused: impl Fn(&SandboxId) -> bool,
    ) -> bool {
        !self.inner.lock().is_full(tenant, limit, is_paused)
    }

    /// Takes a place for one that is paused. `false` when there is none.
    pub(crate) fn begin_wake(
        &self,
        id: &SandboxId,
        tenant: &TenantId,
        limit: u32,
        is_paused: impl Fn(&SandboxId) -> bool,
    ) -> bool {
        let mut inner = self.inner.lock();
        if inner.is_full(tenant, limit, is_paused) {
            return false;
        }
        if let Some(live) = inner.live.get_mut(id) {
            live.waking = true;
        }
        true
    }

    /// Whether it worked, the node knows.
    pub(crate) fn end_wake(&self, id: &SandboxId) {
        if let Some(live) = self.inner.lock().live.get_mut(id) {
            live.waking = false;
            live.paused_at = Some(UnixMillis::now());
        }
    }

    /// It is paused: a new life begins when it wakes, not earlier than now.
    pub(crate) fn set_paused(&self, id: &SandboxId) {
        if let Some(live) = self.inner.lock().live.get_mut(id) {
            live.paused_at = Some(UnixMillis::now());
        }
    }

    pub(crate) fn paused_at(&self, id: &SandboxId) -> Option<UnixMillis> {
        self.inner
            .lock()
            .live
            .get(id)
            .and_then(|live| live.paused_at)
    }

    /// One that was found at start.
    pub(crate) fn adopt(&self, id: &SandboxId, tenant: &TenantId, paused_at: Option<UnixMillis>) {
        self.inner
            .lock()
            .insert(id, tenant, Phase::Running, paused_at);
    }

    /// `false` when the node already reported its end.
    pub(crate) fn created(&self, id: &SandboxId) -> bool {
        let mut inner = self.inner.lock();
        match inner.live.get_mut(id) {
            Some(live) if !live.ended_early => {
                live.phase = Phase::Running;
                true
            }
            _ => false,
        }
    }

    /// Moves a running one to `Ending`; answers the phase that it was in.
    pub(crate) fn begin_end(&self, id: &SandboxId, tenant: &TenantId) -> Option<Phase> {
        let mut inner = self.inner.lock();
        let live = inner
            .live
            .get_mut(id)
            .filter(|live| live.tenant == *tenant)?;
        let before = live.phase;
        if before == Phase::Running {
            live.phase = Phase::Ending;
        }
        Some(before)
    }

    /// It could not be ended: it can be asked again.
    pub(crate) fn abort_end(&self, id: &SandboxId) {
        if let Some(live) = self.inner.lock().live.get_mut(id) {
            live.phase = Phase::Running;
        }
    }

    /// The node says that it ended. Answers whether the caller shall record that: for one that is
    /// being made or being ended, whoever does that records it, and may have done so already.
    pub(crate) fn ended(&self, id: &SandboxId) -> bool {
        let mut inner = self.inner.lock();
        let Some(live) = inner.live.get_mut(id) else {
            return false;
        };
        match live.phase {
            Phase::Creating => live.ended_early = true,
            Phase::Ending => {}
            Phase::Running => {
                inner.remove(id);
                return true;
            }
        }
        false
    }

    pub(crate) fn remove(&self, id: &SandboxId) {
        self.inner.lock().remove(id);
    }

    pub(crate) fn phase(&self, id: &SandboxId) -> Option<Phase> {
        self.inner.lock().live.get(id).map(|live| live.phase)
    }

    /// `None` also for another tenant's.
    pub(crate) fn phase_for(&self, id: &SandboxId, tenant: &TenantId) -> Option<Phase> {
        let inner = self.inner.lock();
        inner
            .live
            .get(id)
            .filter(|live| live.tenant == *tenant)
            .map(|live| live.phase)
    }

    pub(crate) fn gate(&self, id: &SandboxId) -> Option<Arc<tokio::sync::Mutex<()>>> {
        self.inner
            .lock()
            .live
            .get(id)
            .map(|live| Arc::clone(&live.gate))
    }

    /// Those that are being made or ended: few, among thousands.
    pub(crate) fn not_running(&self) -> HashSet<SandboxId> {
        let inner = self.inner.lock();
        let not_running = inner.live.iter().filter(|(_, l)| l.phase != Phase::Running);
        not_running.map(|(id, _)| id.clone()).collect()
    }

    pub(crate) fn running(&self) -> Vec<SandboxId> {
        let inner = self.inner.lock();
        let running = inner
            .live
            .iter()
            .filter(|(_, live)| live.phase == Phase::Running);
        running.map(|(id, _)| id.clone()).collect()
    }
}

impl Inner {
    fn is_full(
        &self,
        tenant: &TenantId,
        limit: u32,
        is_paused: impl Fn(&SandboxId) -> bool,
    ) -> bool {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let Some(ids) = self.by_tenant.get(tenant) else {
            return limit == 0;
        };
        // Nobody needs to be asked whether they rest.
        if ids.len() < limit {
            return false;
        }
        let taken = ids.iter().filter(|id| {
            let live = self.live.get(*id);
            live.is_some_and(|l| l.waking || l.phase == Phase::Creating || !is_paused(id))
        });
        taken.count() >= limit
    }

    fn insert(
        &mut self,
        id: &SandboxId,
        tenant: &TenantId,
        phase: Phase,
        paused_at: Option<UnixMillis>,
    ) {
        let live = Live {
            tenant: tenant.clone(),
            phase,
            ended_early: false,
            waking: false,
            paused_at,
            gate: Arc::default(),
        };
        self.live.insert(id.clone(), live);
        self.by_tenant
            .entry(tenant.clone())
            .or_default()
            .insert(id.clone());
    }

    fn remove(&mut self, id: &SandboxId) {
        let Some(live) = self.live.remove(id) else {
            return;
        };
        if let Some(ids) = self.by_tenant.get_mut(&live.tenant) {
            ids.remove(id);
            if ids.is_empty() {
                self.by_tenant.remove(&live.tenant);
            }
        }
    }
}
