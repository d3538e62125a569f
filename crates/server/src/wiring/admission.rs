//! The reserved slice of all sandboxes and their admission, as configured by the operator.

use std::{num::NonZero, sync::Arc, thread::available_parallelism};

use anyhow::Context;
use soulbox_machine::Machine;
use soulbox_node::{AdmissionConfig, MachineGauge, Overcommit};

use crate::{Config, config::Admission};

/// Before anything is started or adopted: what runs inside already is inside from now on.
pub(super) async fn prepare(config: &Config, machine: &Machine) -> anyhow::Result<AdmissionConfig> {
    for warning in machine.raise_shared_limits().await {
        tracing::warn!("{warning}");
    }
    let (admission, cgroups) = (config.admission, machine.cgroups().clone());
    let gauge = tokio::task::spawn_blocking(move || {
        MachineGauge::with_slice(cgroups, admission.reserve_memory)
    })
    .await?
    .context("--reserve-memory-mb")?;
    Ok(AdmissionConfig {
        wait: admission.wait,
        starts: admission.starts,
        overcommit: overcommit(&admission, gauge.memory_for_sandboxes()),
        gauge: Arc::new(gauge),
    })
}

fn overcommit(admission: &Admission, memory_bytes: u64) -> Overcommit {
    let cpus = available_parallelism().map_or(1, NonZero::get) as u64;
    Overcommit {
        memory_bytes: admission.overcommit_memory.map(|f| times(memory_bytes, f)),
        cpu_millis: admission.overcommit_cpu.map(|f| times(cpus * 1000, f)),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "bytes and factors that are positive; a float to an integer saturates"
)]
fn times(amount: u64, factor: f64) -> u64 {
    (amount as f64 * factor) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_promised_is_a_multiple_of_what_there_is() {
        let mut admission = Admission {
            starts: 1,
            wait: std::time::Duration::ZERO,
            reserve_memory: None,
            overcommit_memory: Some(1.5),
            overcommit_cpu: None,
        };
        let promised = overcommit(&admission, 8 << 30);
        assert_eq!(promised.memory_bytes, Some(12 << 30));
        assert_eq!(promised.cpu_millis, None);
        admission.overcommit_cpu = Some(0.5);
        let cpus = available_parallelism().map_or(1, NonZero::get) as u64;
        assert_eq!(overcommit(&admission, 0).cpu_millis, Some(cpus * 500));
    }
}
