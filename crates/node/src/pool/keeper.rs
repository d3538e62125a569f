//! The task that fills and empties the shelves.

use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use soulbox_runtime::{Result, WarmWish};
use soulbox_template::Template;
use soulbox_types::{
    EndReason, Lifecycle, Limits, NetworkPolicy, Purpose, SandboxId, SandboxSpec, SandboxState,
    Secret, TenantId, UnixMillis,
};
use tokio::task::JoinSet;

use super::{
    Member,
    pressure::{Memory, Pressure},
};
use crate::{LocalNode, folder::Warm, local::blocking};

const TICK: Duration = Duration::from_secs(1);
/// Made at a time while nobody waits for a sandbox; fewer while users do.
const AT_ONCE: usize = 2;
/// What one is taken to need before one of its kind was measured.
const GUESS: u64 = 64 << 20;
/// Nobody's: it waits for whoever comes.
const NOBODY: &str = "00000000-0000-0000-0000-000000000000";
/// It has no end of its own.
const FOREVER: Duration = Duration::from_hours(24 * 365);

pub(crate) async fn keep(node: Weak<LocalNode>) {
    if node.upgrade().is_none_or(|node| node.pool().is_off()) {
        return;
    }
    let mut making = JoinSet::new();
    loop {
        let Some(here) = node.upgrade() else { return };
        here.empty_shelves().await;
        here.fill_shelves(&mut making);
        let pool = Arc::clone(here.pool());
        drop(here);
        tokio::select! {
            () = pool.changed.notified() => {}
            Some(_) = making.join_next() => {}
            () = tokio::time::sleep(TICK) => {}
        }
    }
}

impl LocalNode {
    async fn empty_shelves(self: &Arc<Self>) {
        let pool = self.pool();
        let current = |wish: &WarmWish| self.current_build(wish).map(|t| t.build_id.clone());
        let mut unwanted = pool.shelves().sweep(&pool.config, Instant::now(), current);
        if self.pressure().await == Pressure::High {
            unwanted.extend(pool.shelves().give_up_all());
        } else if self.warm_memory() > pool.config.memory_bytes {
            unwanted.extend(pool.give_up_one());
        }
        for id in unwanted {
            let node = Arc::clone(self);
            tokio::spawn(async move {
                node.finish(&id, EndReason::Killed, "not needed any more")
                    .await;
            });
        }
    }

    fn fill_shelves(self: &Arc<Self>, making: &mut JoinSet<()>) {
        let pool = self.pool();
        let at_once = AT_ONCE.saturating_sub(self.being_made_for_users());
        while making.len() < at_once && self.can_afford_one_more() {
            let mut shelves = pool.shelves();
            let Some(wish) = shelves.lacking(&pool.config, Instant::now()) else {
                return;
            };
            shelves.begin(&wish);
            drop(shelves);
            making.spawn(Arc::clone(self).make_one(wish));
        }
    }

    fn can_afford_one_more(&self) -> bool {
        let pool = self.pool();
        let waiting = pool.shelves().waiting();
        let used = self.warm_memory();
        let each = used / waiting.len().max(1) as u64;
        let expected = if each == 0 { GUESS } else { each };
        let memory = Memory::read(&pool.config.meminfo);
        let enough_memory = memory.is_none_or(|memory| {
            let after = Memory {
                available: memory.available.saturating_sub(expected),
                ..memory
            };
            after.pressure() == Pressure::None
        });
        // The last place on the machine is a user's.
        enough_memory
            && used.saturating_add(expected) <= pool.config.memory_bytes
            && self.free_places() > 1
            && self.check_disk().is_ok()
    }

    async fn pressure(self: &Arc<Self>) -> Pressure {
        let node = Arc::clone(self);
        let looked = blocking(move || {
            if node.check_disk().is_err() {
                return Ok(Pressure::High);
            }
            let memory = Memory::read(&node.pool().config.meminfo);
            Ok(memory.map_or(Pressure::None, Memory::pressure))
        });
        looked.await.unwrap_or(Pressure::None)
    }

    /// What the waiting ones use, as last measured.
    fn warm_memory(&self) -> u64 {
        let waiting = self.pool().shelves().waiting();
        let entries = self.entries().lock();
        let used = waiting
            .iter()
            .filter_map(|id| entries.get(id)?.history.last());
        used.map(|sample| sample.stats.memory_bytes).sum()
    }

    fn being_made_for_users(&self) -> usize {
        let entries = self.entries().lock();
        let made = entries
            .values()
            .filter(|e| e.state == SandboxState::Creating && e.spec.purpose != Purpose::Warm);
        made.count()
    }

    async fn make_one(self: Arc<Self>, wish: WarmWish) {
        let pool = self.pool();
        let made = match self.current_build(&wish) {
            // Gone meanwhile: the next sweep forgets the kind.
            None => None,
            Some(template) => match self.make_member(&wish, &template).await {
                Ok(member) => Some(member),
                Err(error) => {
                    tracing::warn!(template = %wish.template, %error, "no sandbox for the pool");
                    None
                }
            },
        };
        let id = made.as_ref().map(|member| member.id.clone());
        let kept = pool.shelves().made(&wish, made, Instant::now());
        if let Some(id) = id.filter(|_| !kept) {
            self.finish(&id, EndReason::Killed, "not needed any more")
                .await;
        }
    }

    async fn make_member(
        self: &Arc<Self>,
        wish: &WarmWish,
        template: &Arc<Template>,
    ) -> Result<Member> {
        let spec = spec_of(wish, template);
        let id = spec.id.clone();
        Arc::clone(self).create_in_task(spec).await?;
        let member = Member {
            id: id.clone(),
            build_id: template.build_id.clone(),
        };
        self.sample(&id).await;
        let folder = self.folder(&id);
        let warm = Warm {
            build_id: member.build_id.clone(),
        };
        if let Err(error) = blocking(move || folder.warm(&warm)).await {
            self.finish(&id, EndReason::CreateFailed, &error.to_string())
                .await;
            return Err(error);
        }
        Ok(member)
    }
}

fn spec_of(wish: &WarmWish, template: &Template) -> SandboxSpec {
    let now = UnixMillis::now();
    #[expect(clippy::expect_used, reason = "a constant")]
    let tenant: TenantId = NOBODY.parse().expect("a UUID");
    SandboxSpec {
        id: SandboxId::random(),
        tenant,
        template: wish.template.clone(),
        build: wish.build.clone(),
        purpose: Purpose::Warm,
        snapshot: None,
        volumes: Vec::new(),
        alias: None,
        limits: Limits {
            disk_mib: wish.disk_mib,
            ..template.limits
        },
        env: [].into(),
        metadata: [].into(),
        network: NetworkPolicy::default(),
        lifecycle: Lifecycle::default(),
        // Nobody knows it, so nobody inside or outside can use envd before it is somebody's.
        access_token: Some(Secret::random()),
        traffic_token: None,
        node_token: Secret::random(),
        created_at: now,
        deadline: now.plus(FOREVER),
    }
}
