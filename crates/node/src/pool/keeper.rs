//! The task that fills and empties the pool.

use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use soulbox_envd_client::{EnvdClient, RuntimeDial};
use soulbox_runtime::{Error, PoolKey, Result, Stats};
use soulbox_template::Template;
use soulbox_types::{Limits, Purpose, SandboxId, SandboxSpec, Secret, TenantId};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::timeout,
};

use super::{
    Pool,
    config::LONGEST_CALM,
    pressure::{Memory, Pressure},
    warm::{Made, Making, Member, Starting},
};
use crate::{LocalNode, folder::Warm, local::blocking};

const TICK: Duration = Duration::from_secs(1);
/// How long users' sandboxes go first. Longer than most of them take, with what their start command
/// does.
const GIVE_WAY: Duration = Duration::from_secs(5);
/// Of its limit, what one is taken to need before one of its kind was measured.
const GUESS_PART: u64 = 2;
/// Nobody's: it waits for whoever comes.
const NOBODY: &str = "00000000-0000-0000-0000-000000000000";
/// It has no end of its own.
const FOREVER: Duration = Duration::from_hours(24 * 365);

pub(crate) async fn keep(node: Weak<LocalNode>) {
    let config = node.upgrade().map(|node| node.pool().config.clone());
    let Some(config) = config.filter(|config| !config.is_off()) else {
        return;
    };
    let permits = Arc::new(Semaphore::new(config.at_once.max(1)));
    let mut making = JoinSet::new();
    loop {
        let Some(here) = node.upgrade() else { return };
        here.empty_pool().await;
        let pool = Arc::clone(here.pool());
        wait_for_calm(&pool).await;
        here.fill_pool(&mut making, &permits);
        drop(here);
        tokio::select! {
            () = pool.changed.notified() => {}
            Some(_) = making.join_next() => {}
            () = tokio::time::sleep(TICK) => {}
        }
    }
}

async fn wait_for_calm(pool: &Pool) {
    let latest = Instant::now() + LONGEST_CALM;
    loop {
        let now = Instant::now();
        match pool.calm_in(now) {
            Some(rest) if now < latest => tokio::time::sleep(rest).await,
            _ => return,
        }
    }
}

impl LocalNode {
    async fn empty_pool(self: &Arc<Self>) {
        let pool = self.pool();
        let current = |key: &PoolKey| self.current_build(key).map(|t| t.build_id.clone());
        let mut unwanted = pool.warm().sweep(&pool.config, Instant::now(), current);
        if self.pressure().await == Pressure::High {
            unwanted.extend(pool.warm().give_up_all());
        } else if self.warm_memory() > pool.config.memory_bytes {
            unwanted.extend(pool.give_up_one());
        }
        for id in unwanted {
            let node = Arc::clone(self);
            tokio::spawn(async move { node.finish_nobodys(&id, "not needed any more").await });
        }
    }

    fn fill_pool(self: &Arc<Self>, making: &mut JoinSet<()>, permits: &Arc<Semaphore>) {
        let pool = self.pool();
        while self.has_room() {
            let shortage_of = pool.warm().shortage_of(&pool.config, Instant::now());
            let Some(key) = shortage_of.filter(|key| self.has_memory_for(key)) else {
                return;
            };
            pool.warm().begin(&key);
            making.spawn(Arc::clone(self).make_one(key, Arc::clone(permits)));
        }
    }

    /// The last place on the machine is a user's.
    fn has_room(&self) -> bool {
        self.free_sandboxes() > 1 && self.check_disk().is_ok()
    }

    fn has_memory_for(&self, key: &PoolKey) -> bool {
        let pool = self.pool();
        let guess = |key: &PoolKey| {
            let limit = self.current_build(key).map(|t| t.limits.memory_bytes());
            limit.unwrap_or_default() / GUESS_PART
        };
        let expected = pool.warm().expected(key, guess);
        let memory = pool.memory();
        let enough = memory.is_none_or(|memory| {
            let after = Memory {
                available: memory.available.saturating_sub(expected),
                ..memory
            };
            after.pressure() == Pressure::None
        });
        enough && self.warm_memory().saturating_add(expected) <= pool.config.memory_bytes
    }

    async fn pressure(self: &Arc<Self>) -> Pressure {
        let node = Arc::clone(self);
        let looked = blocking(move || {
            if node.check_disk().is_err() {
                return Ok(Pressure::High);
            }
            let memory = node.pool().memory();
            Ok(memory.map_or(Pressure::None, Memory::pressure))
        });
        looked.await.unwrap_or(Pressure::None)
    }

    /// What the waiting ones use, as last measured.
    fn warm_memory(&self) -> u64 {
        let waiting = self.pool().warm().waiting();
        waiting.iter().filter_map(|id| self.memory_of(id)).sum()
    }

    fn memory_of(&self, id: &SandboxId) -> Option<u64> {
        self.last_stats_of(id).map(|stats| stats.memory_bytes)
    }

    fn last_stats_of(&self, id: &SandboxId) -> Option<Stats> {
        let entries = self.entries().lock();
        Some(entries.get(id)?.history.last()?.stats)
    }

    /// Nothing is started for nobody while somebody waits for a sandbox. Bounded, so that a machine
    /// where there is always somebody gets its pool too: one at a time and with little of the cpu,
    /// which costs those who wait less than a pool that is never filled.
    async fn give_way_to_users(&self) {
        let _anyway = timeout(GIVE_WAY, self.creates().nobody_waits()).await;
    }

    async fn make_one(self: Arc<Self>, key: PoolKey, permits: Arc<Semaphore>) {
        let pool = self.pool();
        // Never closed; without a turn it would only be less polite.
        let permit = permits.acquire_owned().await.ok();
        self.give_way_to_users().await;
        let Some(template) = self.current_build(&key) else {
            // Gone meanwhile: the next sweep forgets the kind.
            pool.warm().not_begun(&key, Instant::now());
            return;
        };
        let slot = self.reserve_prepared(key.tier);
        let spec = spec_of(slot.id().clone(), &key, &template);
        let member = Member {
            id: spec.id.clone(),
            build_id: template.build_id.clone(),
        };
        let starting = pool.warm().start(&key, member);
        let made = self.make_member(&key, &spec, &starting, permit).await;
        let outcome = match &made {
            Ok(()) => Making::Ready,
            Err(error @ Error::NoCapacity { .. }) => {
                tracing::debug!(template = %key.template, %error, "no room for the pool");
                Making::NoRoom
            }
            Err(error) => {
                tracing::warn!(template = %key.template, %error, "no sandbox for the pool");
                Making::Failed
            }
        };
        let became = pool.warm().made(&key, &starting, outcome, Instant::now());
        if outcome == Making::Ready && became == Made::Unwanted {
            self.finish_nobodys(&spec.id, "not needed any more").await;
        }
    }

    /// On error nothing is left.
    async fn make_member(
        self: &Arc<Self>,
        key: &PoolKey,
        spec: &SandboxSpec,
        starting: &Starting,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Result<()> {
        let capacity = self.make(spec).await?;
        self.open_up_with_permit(spec, permit).await?;
        drop(capacity);
        if !starting.is_reserved() {
            self.warm_up(spec).await;
            self.sample(&spec.id).await;
            if let Some(stats) = self.last_stats_of(&spec.id) {
                self.pool().warm().measured(key, stats.memory_bytes);
                self.learn(spec, &stats);
            }
        }
        let folder = self.folder(&spec.id);
        let build_id = starting.build_id().to_owned();
        let written = blocking(move || folder.warm(&Warm { build_id })).await;
        if let Err(error) = &written {
            self.give_up_making(spec, error).await;
        }
        written
    }
}

impl LocalNode {
    /// A template need not have what is run for it: it is only slower then.
    async fn warm_up(&self, spec: &SandboxSpec) {
        let Ok(runtime) = self.runtime(spec.tier) else {
            return;
        };
        let dial = RuntimeDial::new(runtime, spec.id.clone());
        if let Err(error) = EnvdClient::new(Arc::new(dial), spec).warm_up().await {
            tracing::debug!(sandbox_id = %spec.id, %error, "it was not warmed up");
        }
    }
}

fn spec_of(id: SandboxId, key: &PoolKey, template: &Template) -> SandboxSpec {
    #[expect(clippy::expect_used, reason = "a constant")]
    let tenant: TenantId = NOBODY.parse().expect("a UUID");
    SandboxSpec {
        id,
        build: key.build.clone(),
        purpose: Purpose::Warm,
        limits: Limits {
            disk_mib: key.disk_mib,
            ..template.limits
        },
        // Nobody knows it, so nobody inside or outside can use envd before it is somebody's.
        access_token: Some(Secret::random()),
        ..SandboxSpec::new(tenant, key.template.clone(), FOREVER)
    }
}
