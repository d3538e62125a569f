//! Traffic wakes a paused sandbox that was created with that option: the request is held until it
//! runs again.
//!
//! Authorization comes first: a stranger must not be able to make it cost anything. The node makes
//! sure that concurrent requests wake it once.

use std::time::Duration;

use http::HeaderMap;
use soulbox_runtime::{Error, Node, NotWoken, SandboxStatus, Waker};
use soulbox_types::{Chain, ENVD_PORT, PauseMode, SandboxState, UnixMillis};

use crate::{
    ingress::{ACCESS_TOKEN, is_admitted},
    refusal::Refusal,
    route::Target,
};

/// A wake takes milliseconds; a pause in progress has to end first.
const MAX_WAIT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// A woken sandbox runs at least so long, as with E2B.
const MIN_LIFETIME: Duration = Duration::from_mins(5);

/// On success the sandbox runs. `may_wake` says whether whoever asks is allowed to.
pub(crate) async fn wake(
    node: &dyn Node,
    waker: Option<&dyn Waker>,
    target: &Target,
    may_wake: impl FnOnce(&SandboxStatus) -> bool,
) -> Result<(), Refusal> {
    let not_found = || Refusal::NotFound(target.id.clone());
    let status = node.get(&target.id).ok_or_else(not_found)?;
    if status.state != SandboxState::Paused || !status.spec.lifecycle.auto_resume {
        return Err(not_found());
    }
    if !may_wake(&status) {
        return Err(Refusal::MayNotWake(target.id.clone()));
    }
    match tokio::time::timeout(MAX_WAIT, resume(node, waker, target, &status)).await {
        Ok(result) => result,
        Err(_elapsed) => Err(Refusal::Changing(target.id.clone())),
    }
}

/// envd's port needs envd's token, and a signed URL does not wake; other ports need the traffic token
/// if there is one.
pub(crate) fn traffic_may_wake(
    status: &SandboxStatus,
    target: &Target,
    headers: &HeaderMap,
) -> bool {
    if !is_admitted(&status.spec, target.port, headers) {
        return false;
    }
    let Some(token) = status
        .spec
        .access_token
        .as_ref()
        .filter(|_| target.port == ENVD_PORT)
    else {
        return true;
    };
    headers
        .get(ACCESS_TOKEN)
        .and_then(|shown| shown.to_str().ok())
        .is_some_and(|s| token.matches(s))
}

async fn resume(
    node: &dyn Node,
    waker: Option<&dyn Waker>,
    target: &Target,
    status: &SandboxStatus,
) -> Result<(), Refusal> {
    let id = &target.id;
    let not_found = || Refusal::NotFound(id.clone());
    loop {
        let status = node.get(id).ok_or_else(not_found)?;
        match (status.state, status.paused) {
            (SandboxState::Running, _) => return Ok(()),
            // Without its memory it would not be what the client talked to.
            (SandboxState::Paused, Some(paused)) if paused.kept != PauseMode::Memory => {
                return Err(not_found());
            }
            (SandboxState::Paused, Some(_)) => break,
            // The pause is in progress.
            (SandboxState::Paused, None) => tokio::time::sleep(POLL_INTERVAL).await,
            _ => return Err(not_found()),
        }
    }
    let lifetime = Duration::from_secs(status.spec.lifecycle.timeout_seconds).max(MIN_LIFETIME);
    let deadline = UnixMillis::now().plus(lifetime);
    let woken = match waker {
        Some(waker) => waker.wake(id, deadline).await,
        None => match node.resume(id, deadline, PauseMode::Memory).await {
            Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        },
    };
    match woken {
        Ok(()) => Ok(()),
        Err(NotWoken::TooMany(_)) => Err(Refusal::TooManyRunning(id.clone())),
        Err(NotWoken::Node(Error::SandboxNotFound(_))) => Err(not_found()),
        Err(NotWoken::Node(Error::NoCapacity { .. } | Error::TooLarge { .. })) => {
            Err(Refusal::NoRoom(id.clone()))
        }
        Err(NotWoken::Node(Error::KernelStuck { .. })) => Err(Refusal::MachineStuck(id.clone())),
        Err(error) => {
            tracing::warn!(sandbox_id = %id, error = %Chain(&error), "traffic could not wake a sandbox");
            Err(Refusal::Changing(id.clone()))
        }
    }
}
