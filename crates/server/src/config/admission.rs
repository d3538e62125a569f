use std::time::Duration;

use soulbox_node::AdmissionConfig;

use super::{ConfigError, Settings, bad};

/// The longest wait for capacity: a client waits for 60 s, which includes the start itself.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
const LARGEST_FACTOR: f64 = 1_000_000.0;

/// Admission when the machine gets full.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Admission {
    pub starts: usize,
    pub wait: Duration,
    /// In bytes.
    pub reserve_memory: Option<u64>,
    /// As a multiple of what sandboxes may use of the machine.
    pub overcommit_memory: Option<f64>,
    pub overcommit_cpu: Option<f64>,
}

impl TryFrom<&Settings> for Admission {
    type Error = ConfigError;

    fn try_from(settings: &Settings) -> Result<Self, ConfigError> {
        let wait = settings
            .admission_wait
            .map_or(AdmissionConfig::WAIT, |span| span.0);
        if wait > LONGEST_WAIT {
            return Err(bad(
                "admission-wait",
                format!("must be at most {} s", LONGEST_WAIT.as_secs()),
            ));
        }
        let starts = settings
            .parallel_starts
            .unwrap_or_else(AdmissionConfig::usual_starts);
        if !(1..=10_000).contains(&starts) {
            return Err(bad("parallel-starts", "must be between 1 and 10000"));
        }
        let factor = |option, value: Option<f64>| match value {
            Some(factor) if !(factor > 0.0 && factor <= LARGEST_FACTOR) => {
                Err(bad(option, "must be a factor above 0, such as 1 or 2.5"))
            }
            other => Ok(other),
        };
        Ok(Self {
            starts,
            wait,
            reserve_memory: settings
                .reserve_memory_mb
                .map(|mib| mib.saturating_mul(1 << 20)),
            overcommit_memory: factor("overcommit-memory", settings.overcommit_memory)?,
            overcommit_cpu: factor("overcommit-cpu", settings.overcommit_cpu)?,
        })
    }
}
