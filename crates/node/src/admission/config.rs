use std::{num::NonZero, sync::Arc, thread::available_parallelism, time::Duration};

use super::{Gauge, MachineGauge};

/// Starting a sandbox is mostly system calls that wait for locks and each other, so a few per cpu
/// keep it busy; more would only make all of them late.
const STARTS_PER_CPU: usize = 4;

/// Who is let in, and how long others wait.
#[derive(Debug, Clone)]
pub struct AdmissionConfig {
    /// For something to end, when the machine is full.
    pub wait: Duration,
    /// Sandboxes whose processes are started at the same time.
    pub starts: usize,
    pub overcommit: Overcommit,
    pub gauge: Arc<dyn Gauge>,
}

/// What the limits of all sandboxes may come to. `None`: they are not summed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Overcommit {
    pub memory_bytes: Option<u64>,
    /// Thousandths of a cpu.
    pub cpu_millis: Option<u64>,
}

impl AdmissionConfig {
    pub const WAIT: Duration = Duration::from_secs(3);

    pub fn usual_starts() -> usize {
        available_parallelism().map_or(1, NonZero::get) * STARTS_PER_CPU
    }
}

impl Default for AdmissionConfig {
    /// Of this machine, without a slice.
    fn default() -> Self {
        Self {
            wait: Self::WAIT,
            starts: Self::usual_starts(),
            overcommit: Overcommit::default(),
            gauge: Arc::new(MachineGauge::without_slice()),
        }
    }
}
