//! For how long a member that is being made keeps others from beginning.
//!
//! Few are made at the same time, each with a cap on its cpu, so that all of them leave half of the
//! machine alone. Some start commands compute and others wait, for a network or a timer; one that
//! waits while cpus are idle takes nothing from anybody, so the next one may begin beside it.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use soulbox_runtime::Result;
use soulbox_types::{SandboxId, SandboxSpec};
use tokio::{sync::OwnedSemaphorePermit, time::timeout};

use crate::{LocalNode, local::blocking};

/// A start command that computes for ever must not keep other templates from the pool.
const LONGEST: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(500);
/// One that uses less than this part of a cpu waits,
const WAITS_PART: u32 = 10;
/// if it could have had more: of all cpu time, this part was idle.
const IDLE_PART: u64 = 4;

impl LocalNode {
    /// [`Self::open_up`], holding the turn until it is ready, only waits, or has had it for long.
    pub(super) async fn open_up_with_permit(
        self: &Arc<Self>,
        spec: &SandboxSpec,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Result<()> {
        let opened = self.open_up(spec);
        tokio::pin!(opened);
        tokio::select! {
            opened = &mut opened => return opened.map(drop),
            _over = timeout(LONGEST, self.until_it_only_waits(&spec.id)) => drop(permit),
        }
        opened.await.map(drop)
    }

    async fn until_it_only_waits(&self, id: &SandboxId) {
        let mut before = self.look_at_cpu(id).await;
        loop {
            tokio::time::sleep(LOOK).await;
            let now = self.look_at_cpu(id).await;
            if let (Some(before), Some(now)) = (&before, &now)
                && now.only_waited_since(before)
            {
                return;
            }
            before = now;
        }
    }

    async fn look_at_cpu(&self, id: &SandboxId) -> Option<Look> {
        let used = self.runtime_of(id).ok()?.stats(id).await.ok()?.cpu_micros;
        let machine = blocking(|| Ok(CpuTime::read(Path::new("/proc/stat"))));
        Some(Look {
            at: Instant::now(),
            used: Duration::from_micros(used),
            machine: machine.await.ok()??,
        })
    }
}

struct Look {
    at: Instant,
    /// Cpu time of the one that is being made.
    used: Duration,
    machine: CpuTime,
}

impl Look {
    fn only_waited_since(&self, before: &Self) -> bool {
        let elapsed = self.at.duration_since(before.at);
        let used = self.used.saturating_sub(before.used);
        used < elapsed / WAITS_PART && self.machine.was_idle_since(before.machine)
    }
}

/// Of all cpus, since the machine was started, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CpuTime {
    idle: u64,
    all: u64,
}

impl CpuTime {
    fn read(path: &Path) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(path).ok()?)
    }

    /// `cpu  user nice system idle iowait irq softirq steal …`; what follows is counted in these.
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line
            .split_ascii_whitespace()
            .take(8)
            .map(|field| field.parse().ok())
            .collect::<Option<_>>()?;
        Some(Self {
            idle: ticks.get(3)? + ticks.get(4)?,
            all: ticks.iter().sum(),
        })
    }

    fn was_idle_since(self, before: Self) -> bool {
        let idle = self.idle.saturating_sub(before.idle);
        let all = self.all.saturating_sub(before.all);
        all > 0 && idle * IDLE_PART >= all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(begun: Instant, millis: u64, used_millis: u64, idle: u64) -> Look {
        Look {
            at: begun + Duration::from_millis(millis),
            used: Duration::from_millis(used_millis),
            machine: CpuTime {
                idle,
                all: millis / 5,
            },
        }
    }

    #[test]
    fn one_that_uses_little_waits_only_if_the_machine_was_idle() {
        let begun = Instant::now();
        let first = look(begun, 0, 0, 0);
        assert!(look(begun, 500, 20, 50).only_waited_since(&first));
        let busy = look(begun, 500, 400, 50);
        assert!(!busy.only_waited_since(&first), "it computes");
        let starved = look(begun, 500, 20, 5);
        assert!(!starved.only_waited_since(&first), "it got no cpu");
    }

    #[test]
    fn the_kernels_words_are_read() {
        let text = "cpu  10 1 5 100 20 0 2 3 7 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        let time = CpuTime {
            idle: 120,
            all: 141,
        };
        assert_eq!(CpuTime::parse(text), Some(time));
        assert_eq!(CpuTime::parse("cpu  10 many\n"), None);
        assert!(CpuTime::read(Path::new("/proc/stat")).is_some());
    }
}
