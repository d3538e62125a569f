//! What takes too long for each request of the metrics page is looked at now and then.

use std::{path::PathBuf, sync::Arc, time::Duration};

use parking_lot::Mutex;
use soulbox_machine::Machine;
use soulbox_net::Traffic;

use crate::{
    backup::{LastBackup, last_backup},
    disk_use::DiskUse,
};

const EVERY: Duration = Duration::from_secs(15);

/// The latest look.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sampled {
    /// `None`: the firewall could not be asked.
    pub(crate) traffic: Option<Traffic>,
    pub(crate) disk: Vec<(&'static str, u64)>,
    pub(crate) last_backup: Option<LastBackup>,
}

/// Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sampler(Arc<Mutex<Sampled>>);

impl Sampler {
    pub(crate) fn latest(&self) -> Sampled {
        self.0.lock().clone()
    }

    /// Looks for as long as it is polled.
    pub(crate) async fn run(self, machine: Arc<Machine>, data_dir: PathBuf) {
        let mut disk_use = DiskUse::default();
        let mut tick = tokio::time::interval(EVERY);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let traffic = match machine.network().traffic().await {
                Ok(traffic) => Some(traffic),
                Err(error) => {
                    tracing::debug!(%error, "the firewall's counters cannot be read");
                    None
                }
            };
            let folder = data_dir.clone();
            let looked = tokio::task::spawn_blocking(move || {
                let disk = disk_use.look(&folder);
                (disk, last_backup(&folder), disk_use)
            });
            let Ok((disk, last_backup, counted)) = looked.await else {
                // It panicked, which was logged.
                disk_use = DiskUse::default();
                continue;
            };
            disk_use = counted;
            *self.0.lock() = Sampled {
                traffic,
                disk,
                last_backup,
            };
        }
    }
}
