//! What runs in the background: ready slots are built, those that left become free, and rules that
//! somebody removed come back.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::host::Host;
use crate::Error;
use crate::firewall::{self, Watch};
use crate::flows::{self, ScanResult, ScanSchedule};

const FIRST_LOOK: Duration = Duration::from_millis(10);
const LATER_LOOKS: Duration = Duration::from_secs(1);
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// The kernel looks at every place of a large table: so for all who left meanwhile at once.
const BETWEEN_WALKS: Duration = Duration::from_millis(100);
/// How often it is looked at how full the table of connections is.
const FLOWS_LOOK: Duration = Duration::from_secs(1);

/// Frees numbers whose links are gone. The kernel takes down a namespace some time after its last
/// process, and a sandbox may outlive our `Slot`: so look soon, then ever more rarely.
pub(super) async fn watch_leaving(host: Arc<Host>, stop: CancellationToken) {
    let mut pause = FIRST_LOOK;
    let mut walked = None;
    while stop
        .run_until_cancelled(next_look(&host, &mut pause))
        .await
        .is_some()
    {
        let gone = match host.gone(host.slot_table.leaving()).await {
            Ok(gone) => gone,
            Err(error) => {
                tracing::warn!(%error, "cannot see which slots left; trying again");
                continue;
            }
        };
        for index in without_flows(&host, gone, &mut walked).await {
            match host.forget_policy(index).await {
                Ok(()) => host.slot_table.release(index),
                Err(error) => {
                    tracing::warn!(%error, "a slot's policy cannot be removed; trying again");
                }
            }
        }
    }
}

/// Those of the slots that have no connections any more; the others are for a later look.
async fn without_flows(host: &Host, gone: Vec<u32>, walked: &mut Option<Instant>) -> Vec<u32> {
    let (has_sent, mut clean): (Vec<_>, Vec<_>) = gone
        .into_iter()
        .partition(|index| host.slot_table.has_sent(*index));
    if has_sent.is_empty() || walked.is_some_and(|last| last.elapsed() < BETWEEN_WALKS) {
        return clean;
    }
    match host.forget_flows(&has_sent).await {
        Ok(0) => {}
        Ok(count) => tracing::debug!(count, "connections of sandboxes that ended were removed"),
        // They expire, some after days. Without the number there would be no sandbox at all.
        Err(error) => {
            tracing::warn!(%error, "connections of sandboxes that ended cannot be removed");
        }
    }
    *walked = Some(Instant::now());
    clean.extend(has_sent);
    clean
}

async fn next_look(host: &Host, pause: &mut Duration) {
    if host.slot_table.leaving().is_empty() {
        host.slot_table.released.notified().await;
        *pause = FIRST_LOOK;
    }
    let another = tokio::time::timeout(*pause, host.slot_table.released.notified()).await;
    *pause = if another.is_ok() {
        FIRST_LOOK
    } else {
        (*pause * 2).min(LATER_LOOKS)
    };
}

/// Keeps the pool full.
pub(super) async fn fill_pool(host: Arc<Host>, stop: CancellationToken) {
    stop.run_until_cancelled(refill_pool(&host)).await;
    host.slot_table.drain_ready();
}

async fn refill_pool(host: &Arc<Host>) {
    loop {
        while host.slot_table.stats().pool < host.config.pool {
            let Some(lease) = host.slot_table.lease_for_pool() else {
                break;
            };
            let built = host.build(lease).await;
            if let Err(error) = &built {
                tracing::warn!(%error, "a network slot could not be built; trying again");
            }
            let failed = built.is_err();
            host.slot_table.built_for_pool(built.ok());
            if failed {
                tokio::time::sleep(AFTER_FAILURE).await;
            }
        }
        host.slot_table.changed.notified().await;
    }
}

/// Puts the rules back when somebody removes them.
///
/// It ends while it waits, never while it writes: what a cancelled `nft` still does would come after
/// the clean-up.
pub(super) async fn guard_rules(host: Arc<Host>, watch: Watch, stop: CancellationToken) {
    while let Some(news) = stop.run_until_cancelled(watch.a_deleted_table()).await {
        if let Err(error) = news {
            tracing::warn!(%error, "firewall changes cannot be read");
            stop.run_until_cancelled(tokio::time::sleep(AFTER_FAILURE))
                .await;
        }
        if firewall::is_applied(&host.names.table()).await {
            continue;
        }
        tracing::warn!("somebody removed the firewall rules of sandboxes; putting them back");
        while let Err(error) = write_rules(&host).await {
            tracing::error!(%error, "SANDBOXES RUN WITHOUT A FIREWALL; trying again");
            let pause = tokio::time::sleep(AFTER_FAILURE);
            if stop.run_until_cancelled(pause).await.is_none() {
                return;
            }
        }
    }
}

/// The lock is held for one attempt only: others may want to say what happens to their sandbox.
async fn write_rules(host: &Host) -> Result<(), Error> {
    let policies = host.policies.lock().await;
    firewall::apply(&host.rules(&policies)).await
}

/// Keeps sandboxes from filling the kernel's table of connections: then nobody on this machine
/// could open one, the server and its operator included.
pub(super) async fn guard_flows(host: Arc<Host>, stop: CancellationToken) {
    let mut schedule = ScanSchedule::default();
    while stop
        .run_until_cancelled(tokio::time::sleep(FLOWS_LOOK))
        .await
        .is_some()
    {
        let Some((used, limit)) = flows::used_of_table().await else {
            continue;
        };
        // Half of it is for others.
        let budget = limit / 2;
        if !schedule.is_due(used, budget, Instant::now()) {
            continue;
        }
        match host.cut_flows(budget).await {
            Ok(ScanResult::Within(held)) => {
                schedule.found_nothing(held, used, budget, Instant::now());
            }
            Ok(ScanResult::Removed(cut)) => {
                schedule.found_excess();
                tracing::warn!(
                    used,
                    limit,
                    removed = cut.deleted,
                    sandboxes = cut.sandboxes,
                    each = cut.share,
                    "sandboxes had more than half of this machine's table of connections; those \
                     with the most lost the rest of theirs (sysctl net.netfilter.nf_conntrack_max)"
                );
            }
            Err(error) => {
                schedule.found_nothing(0, used, budget, Instant::now());
                tracing::warn!(%error, "the table of connections cannot be read");
            }
        }
    }
}
