//! Traffic wakes a paused sandbox that was made so: the request is held until it runs again.
//!
//! Who may wake it is asked first: a stranger must not be able to make it cost anything. The node
//! makes sure that requests that come together wake it once.

use std::time::Duration;

use http::HeaderMap;
use soulbox_runtime::{Error, Node, NotWoken, SandboxStatus, Waker};
use soulbox_types::{Chain, ENVD_PORT, PauseMode, SandboxState, UnixMillis};

use crate::{ingress::is_admitted, refusal::Refusal, route::Target};

/// A wake takes milliseconds; a pause that is still under way has to end first.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// The least life that a woken sandbox gets, as E2B gives it.
const LEAST_LIFE: Duration = Duration::from_mins(5);
const ACCESS_TOKEN: &str = "x-access-token";

/// On success it runs.
pub(crate) async fn wake(
    node: &dyn Node,
    waker: Option<&dyn Waker>,
    target: &Target,
    headers: &HeaderMap,
) -> Result<(), Refusal> {
    let not_found = || Refusal::NotFound(target.id.clone());
    let status = node.get(&target.id).ok_or_else(not_found)?;
    if status.state != SandboxState::Paused || !status.spec.lifecycle.auto_resume {
        return Err(not_found());
    }
    if !may_wake(&status, target, headers) {
        return Err(Refusal::MayNotWake(target.id.clone()));
    }
    match tokio::time::timeout(PATIENCE, resume(node, waker, target, &status)).await {
        Ok(result) => result,
        Err(_elapsed) => Err(Refusal::Changing(target.id.clone())),
    }
}

/// envd's port needs envd's token, where a signed URL does not wake; the others need the token for
/// traffic if there is one.
fn may_wake(status: &SandboxStatus, target: &Target, headers: &HeaderMap) -> bool {
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
        match (node.get(id).map(|status| status.state), node.paused(id)) {
            (Some(SandboxState::Running), _) => return Ok(()),
            // Without its memory it would not be what the client talked to.
            (Some(SandboxState::Paused), Some(paused)) if paused.kept != PauseMode::Memory => {
                return Err(not_found());
            }
            (Some(SandboxState::Paused), Some(_)) => break,
            // Still on its way to rest.
            (Some(SandboxState::Paused), None) => tokio::time::sleep(LOOK_AGAIN).await,
            _ => return Err(not_found()),
        }
    }
    let life = Duration::from_secs(status.spec.lifecycle.timeout_seconds).max(LEAST_LIFE);
    let deadline = UnixMillis::now().plus(life);
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
        Err(error) => {
            tracing::warn!(sandbox_id = %id, error = %Chain(&error), "traffic could not wake a sandbox");
            Err(Refusal::Changing(id.clone()))
        }
    }
}
