//! What is needed to find a sandbox again after a restart of the server.

use serde::{Deserialize, Serialize};
use soulbox_runtime::{Error, Result, Running};
use soulbox_types::Tier;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) pid: i32,
    /// With the pid, names a process once and for all: when it started, in clock ticks since boot.
    pub(crate) start_time: u64,
    /// A record of an earlier boot names nothing.
    pub(crate) boot_id: String,
    pub(crate) slot: u32,
    /// The kernel's name of the device that its disk is on. Absent in records of earlier versions.
    #[serde(default)]
    pub(crate) disk: Option<String>,
}

impl Record {
    pub(crate) fn to_running(&self) -> Result<Running> {
        let record = serde_json::to_string(self)
            .map_err(|e| Error::io("could not write a record", std::io::Error::other(e)))?;
        Ok(Running {
            tier: Tier::Jail,
            record,
        })
    }

    pub(crate) fn from_running(running: &Running) -> Result<Self> {
        serde_json::from_str(&running.record)
            .map_err(|e| Error::io("the sandbox's record is damaged", std::io::Error::other(e)))
    }
}
