//! What a create asks for beyond the sandbox itself. Those that are not built yet are refused,
//! never ignored; their defaults, which some clients spell out, are fine.

use serde::Deserialize;
use serde_json::Value;
use soulbox_control::{LifecycleRequest, MountRequest};
use soulbox_types::{NetworkPolicy, OnTimeout, PauseMode};

use super::network::NetworkBody;
use crate::shared::error::{ApiError, Result};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Features {
    auto_pause: Option<bool>,
    auto_pause_memory: Option<bool>,
    auto_resume: Option<AutoResume>,
    network: Option<NetworkBody>,
    volume_mounts: Option<Vec<VolumeMount>>,
    iam: Option<Iam>,
}

#[derive(Debug, Deserialize)]
struct VolumeMount {
    name: String,
    path: String,
}

#[derive(Debug, Deserialize)]
struct AutoResume {
    enabled: bool,
}

#[derive(Debug, Deserialize)]
struct Iam {
    tokens: Option<serde_json::Map<String, Value>>,
}

impl Features {
    pub(super) fn lifecycle(&self) -> Result<LifecycleRequest> {
        let auto_resume = self
            .auto_resume
            .as_ref()
            .is_some_and(|resume| resume.enabled);
        let pauses = self.auto_pause == Some(true);
        if self.auto_pause_memory == Some(false) && (!pauses || auto_resume) {
            return Err(ApiError::bad_request(
                "autoPauseMemory: false needs autoPause: true and no autoResume",
            ));
        }
        let on_timeout = match (pauses, self.auto_pause_memory) {
            (false, _) => OnTimeout::Kill,
            (true, Some(false)) => OnTimeout::Pause(PauseMode::Filesystem),
            (true, _) => OnTimeout::Pause(PauseMode::Memory),
        };
        Ok(LifecycleRequest {
            on_timeout,
            auto_resume,
        })
    }

    /// What is asked for beside `network` comes from elsewhere in the document.
    pub(super) fn network(&mut self, allow_internet: Option<bool>) -> Result<NetworkPolicy> {
        let policy = self.network.take().unwrap_or_default().policy()?;
        Ok(NetworkPolicy {
            allow_internet,
            ..policy
        })
    }

    pub(super) fn volume_mounts(&mut self) -> Vec<MountRequest> {
        let mounts = self.volume_mounts.take().unwrap_or_default();
        let request = |mount: VolumeMount| MountRequest {
            name: mount.name,
            path: mount.path,
        };
        mounts.into_iter().map(request).collect()
    }

    pub(super) fn check(&self) -> Result<()> {
        let tokens = self.iam.as_ref().and_then(|iam| iam.tokens.as_ref());
        if tokens.is_some_and(|tokens| !tokens.is_empty()) {
            let instead = "pass tokens in `envs`";
            return Err(ApiError::not_supported("workload identity (iam)", instead));
        }
        Ok(())
    }
}
