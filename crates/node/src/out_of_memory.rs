//! What the kernel killed for lack of memory is told: in the sandbox's log, as an event, and counted.

use std::{sync::atomic::Ordering, time::Duration};

use soulbox_runtime::{LogLevel, NodeEvent, Stats};
use soulbox_types::{Purpose, SandboxId, UnixMillis};
use tokio::time::timeout;

use crate::LocalNode;

/// The last look at a sandbox that ends: it must not make the end wait.
const LAST_LOOK: Duration = Duration::from_millis(100);

impl LocalNode {
    /// How often the kernel killed something in a sandbox of a user, since the server started.
    pub fn oom_kills(&self) -> u64 {
        self.oom_kills.load(Ordering::Relaxed)
    }

    /// With every sample of its use.
    pub(crate) fn note_stats(&self, id: &SandboxId, stats: Stats) {
        let told = {
            let mut entries = self.entries().lock();
            let Some(mut entry) = entries.get_mut(id) else {
                return;
            };
            let before = entry.history.last().map_or(0, |last| last.stats.oom_kills);
            entry.history.add(UnixMillis::now(), stats);
            let killed = stats.oom_kills.saturating_sub(before);
            if killed == 0 || entry.spec.purpose != Purpose::User {
                return;
            }
            let memory_mib = entry.spec.limits.memory_mib;
            let what = if killed == 1 {
                "a process".to_owned()
            } else {
                format!("{killed} processes")
            };
            let message = format!(
                "out of memory: the kernel killed {what}: the sandbox may use {memory_mib} MiB"
            );
            entry.note(LogLevel::Error, message);
            NodeEvent::OutOfMemory {
                id: id.clone(),
                killed,
                memory_mib,
            }
        };
        if let NodeEvent::OutOfMemory { killed, .. } = &told {
            self.oom_kills.fetch_add(*killed, Ordering::Relaxed);
        }
        self.emit(told);
    }

    /// Of one that ends: what happened since the last sample is told before it is gone.
    pub(crate) async fn last_stats(&self, id: &SandboxId) {
        let look = async { self.runtime_of(id)?.stats(id).await };
        if let Ok(Ok(stats)) = timeout(LAST_LOOK, look).await {
            self.note_stats(id, stats);
        }
    }
}
